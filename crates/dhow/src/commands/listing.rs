//! What listings have in common: the API's JSON for programs, a table for people, and a word where there is nothing.

use serde::de::DeserializeOwned;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table};

/// What is listed, and how.
pub struct Listing<'a> {
    /// Its path in the API.
    pub path: &'a str,
    /// What is said where there is nothing.
    pub none: &'a str,
    pub heading: &'a [&'a str],
}

impl Listing<'_> {
    /// Fetches and prints it, a row for each.
    pub async fn print<T: DeserializeOwned, const COLUMNS: usize>(
        &self,
        client: &Client,
        json: bool,
        row: impl Fn(&T) -> [String; COLUMNS],
    ) -> anyhow::Result<Exit> {
        let value = client.fetch(Request::get(&[self.path])).await?;
        if json {
            output::json(&value)?;
            return Ok(Exit::Done);
        }
        let all: Vec<T> = client.decode(value)?;
        if all.is_empty() {
            output::note(self.none);
            return Ok(Exit::Done);
        }
        let mut table = Table::new(self.heading);
        for one in &all {
            table.row(row(one));
        }
        output::data(&table.render())?;
        Ok(Exit::Done)
    }
}
