//! Columns of text.

/// Rows under their heads, each column as wide as it must be, nothing behind the last one.
pub(super) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    const GAP: usize = 2;
    let mut widths = heads.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            text.push_str(cell);
            let pad = width + GAP - cell.chars().count();
            text.extend(std::iter::repeat_n(' ', pad));
        }
        text.trim_end().to_owned()
    };
    let head = line(heads.to_vec());
    let body = rows
        .iter()
        .map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(head).chain(body).collect()
}
