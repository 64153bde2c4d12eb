//! Listings: a heading and rows, parted by blanks alone, so that both people and `awk` can read them.

use comfy_table::{ContentArrangement, presets};

use super::human::one_line;

/// Blanks between two columns.
const GAP: u16 = 2;

/// A listing.
pub struct Table {
    table: comfy_table::Table,
    is_empty: bool,
}

impl Table {
    pub fn new(heading: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        // A line that is longer than the screen is left to the terminal: cut ids are of no use.
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(heading);
        for column in table.column_iter_mut() {
            column.set_padding((0, GAP));
        }
        Self {
            table,
            is_empty: true,
        }
    }

    /// One cell per column; an empty one is shown as `-`, so that columns can be counted.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.is_empty = false;
        let cells = cells.into_iter().map(|cell| match one_line(&cell) {
            empty if empty.is_empty() => "-".to_owned(),
            cell => cell,
        });
        self.table.add_row(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub fn render(&self) -> String {
        format!("{}\n", self.table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_parted_by_blanks_and_never_empty() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["web".into(), "running".into()]);
        table.row(["a-long-one".into(), String::new()]);
        table.row(["two\nlines".into(), "x".into()]);
        assert_eq!(
            table.render(),
            "NAME        STATE\nweb         running\na-long-one  -\ntwo lines   x\n"
        );
    }
}
