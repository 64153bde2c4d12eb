//! One folder that shows all of its files or none: what it shows is a folder of its own beside, and a link says which. A
//! reader sees the old files or the new ones, never some of each.
//!
//! `..data` is the link, `..<digest>` what it leads to, `..pending` the signals that the program has still to get: written
//! before the link changes, so that a daemon that is killed in between sends them after its next start.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::plan::{FilePlan, FolderPlan};
use super::{FileContents, FilesError};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data.new";
const PENDING: &str = "..pending";
const NEW_PENDING: &str = "..pending.new";
const MAKING: &str = "..making";

/// Has the folder show its files. What was there stays until [`settle`].
pub(super) fn show(plan: &FolderPlan, contents: &FileContents) -> Result<(), FilesError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FilesError::Write { path, source }
    };
    make_folder(plan)?;
    let wanted = plan.content_dir();
    if !wanted.is_dir() {
        let making = plan.dir.join(MAKING);
        write(plan, contents, &making)?;
        fs::rename(&making, &wanted).map_err(failed(&wanted))?;
    }
    let link = plan.dir.join(DATA);
    let leads_to = PathBuf::from(format!("..{}", plan.digest));
    let before = fs::read_link(&link).ok();
    if before.as_ref() != Some(&leads_to) {
        if let Some(before) = &before {
            note_signals(plan, &plan.dir.join(before)).map_err(failed(&plan.dir))?;
        }
        replace_link(&leads_to, &plan.dir.join(NEW_DATA), &link).map_err(failed(&link))?;
    }
    for file in &plan.files {
        let name = plan.dir.join(&file.name);
        let to = Path::new(DATA).join(&file.name);
        if fs::read_link(&name).ok().as_ref() != Some(&to) {
            replace_link(&to, &plan.dir.join(NEW_DATA), &name).map_err(failed(&name))?;
        }
    }
    Ok(())
}

fn replace_link(to: &Path, new: &Path, link: &Path) -> io::Result<()> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    symlink(to, new)?;
    fs::rename(new, link)
}

fn make_folder(plan: &FolderPlan) -> Result<(), FilesError> {
    let failed = |source| FilesError::Write {
        path: plan.dir.clone(),
        source,
    };
    let parent = plan.dir.parent().unwrap_or(&plan.dir);
    let closed = match plan.group {
        Some(_) => 0o750,
        None => 0o700,
    };
    // A container sees the folder, and whoever it runs as may look into it; what is above it is closed to others.
    let inner = if plan.target.is_some() { 0o755 } else { closed };
    for (dir, mode) in [(parent, closed), (plan.dir.as_path(), inner)] {
        if let Some(above) = dir.parent() {
            let mut made = DirBuilder::new();
            made.recursive(true).mode(super::memory::MODE);
            made.create(above).map_err(failed)?;
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        if let Some(group) = plan.group {
            chown(dir, None, Some(group)).map_err(failed)?;
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    Ok(())
}

fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<(), FilesError> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    chown(path, Some(uid), Some(gid)).map_err(|source| FilesError::Owner {
        path: path.to_owned(),
        uid,
        gid,
        source,
    })
}

fn write(plan: &FolderPlan, contents: &FileContents, to: &Path) -> Result<(), FilesError> {
    let failed = |source| FilesError::Write {
        path: to.to_owned(),
        source,
    };
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    // What was written before a power cut is taken for whole after it, so that it has to be.
    let sync = |opened: &fs::File| match plan.is_in_memory {
        true => Ok(()),
        false => opened.sync_all().map_err(failed),
    };
    DirBuilder::new().mode(0o755).create(to).map_err(failed)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    for file in &plan.files {
        let content = contents.get(&file.key).ok_or(FilesError::Missing)?;
        let opened = write_file(&to.join(&file.name), file, content)?;
        sync(&opened)?;
    }
    let opened = fs::File::open(to).map_err(failed)?;
    sync(&opened)
}

fn write_file(path: &Path, file: &FilePlan, content: &[u8]) -> Result<fs::File, FilesError> {
    let failed = |source| FilesError::Write {
        path: path.to_owned(),
        source,
    };
    let opened = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path);
    let mut opened = opened.map_err(failed)?;
    opened.write_all(content).map_err(failed)?;
    give(path, file.owner)?;
    let mode = fs::Permissions::from_mode(file.mode.0);
    opened.set_permissions(mode).map_err(failed)?;
    Ok(opened)
}

/// Notes whom to tell of files that differ from those before, beside what is noted already.
fn note_signals(plan: &FolderPlan, before: &Path) -> io::Result<()> {
    let wanted = plan.content_dir();
    let mut signals = read_signals(plan)?;
    for file in &plan.files {
        let Some(signal) = &file.signal else { continue };
        let (old, new) = (
            fs::read(before.join(&file.name)).ok(),
            fs::read(wanted.join(&file.name))?,
        );
        if old.as_ref() != Some(&new) {
            signals.insert(signal.clone());
        }
    }
    if signals.is_empty() {
        return Ok(());
    }
    let text: Vec<String> = signals.into_iter().collect();
    let new = plan.dir.join(NEW_PENDING);
    fs::write(&new, text.join("\n"))?;
    fs::rename(new, plan.dir.join(PENDING))
}

fn read_signals(plan: &FolderPlan) -> io::Result<BTreeSet<String>> {
    match fs::read_to_string(plan.dir.join(PENDING)) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// The signals that the program has still to get.
pub(super) fn signals(plan: &FolderPlan) -> Result<BTreeSet<String>, FilesError> {
    read_signals(plan).map_err(|source| FilesError::Write {
        path: plan.dir.clone(),
        source,
    })
}

/// Takes away what the folder showed before, and the note of whom to tell.
pub(super) fn settle(plan: &FolderPlan) -> Result<(), FilesError> {
    let failed = |source| FilesError::Write {
        path: plan.dir.clone(),
        source,
    };
    let current = fs::read_link(plan.dir.join(DATA)).ok();
    let entries = match fs::read_dir(&plan.dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries.flatten() {
        let name = PathBuf::from(entry.file_name());
        let is_own = name
            .to_str()
            .is_some_and(|name| name.starts_with("..") && name != DATA);
        if !is_own || Some(&name) == current.as_ref() {
            continue;
        }
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(entry.path()),
            Ok(_) | Err(_) => fs::remove_file(entry.path()),
        };
        removed.map_err(failed)?;
    }
    Ok(())
}
