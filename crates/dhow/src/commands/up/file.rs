//! Which file `up` means where none is named.

use std::path::{Path, PathBuf};

const ENDINGS: [&str; 3] = [".dhow.yaml", ".dhow.yml", ".dhow.json"];

/// The file that was named, or the only deployment file of the folder.
pub fn choose(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(file) = named {
        return Ok(file.to_owned());
    }
    let entries = std::fs::read_dir(".").map_err(|error| format!("this folder cannot be read: {error}"))?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names
        .filter(|name| ENDINGS.iter().any(|ending| name.ends_with(ending)))
        .collect();
    found.sort();
    match found.as_slice() {
        [only] => Ok(only.into()),
        [] => Err("there is no `*.dhow.yaml` in this folder: name the file, as in `dhow up FILE`".into()),
        several => Err(format!(
            "which one? {}: name it, as in `dhow up {}`",
            several.join(", "),
            several[0]
        )),
    }
}
