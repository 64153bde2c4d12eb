//! Reading a kept file back: one that is damaged is put aside, where somebody can look at it, and not written over.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use crate::Dir;

/// How many damaged files of one name are kept: whoever has that many has a disk to replace.
const ASIDE_MAX: u32 = 100;

/// What stood in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Kept<T> {
    /// There is none.
    Absent,
    Whole(T),
    /// It could not be understood, and is now at this path.
    SetAside {
        path: PathBuf,
        why: String,
    },
}

impl<T> Kept<T> {
    /// What stood there, after `told` has heard of a file that was put aside and why.
    pub fn or_tell(self, told: impl FnOnce(&Path, &str)) -> Option<T> {
        match self {
            Self::Absent => None,
            Self::Whole(value) => Some(value),
            Self::SetAside { path, why } => {
                told(&path, &why);
                None
            }
        }
    }
}

/// Reads a file that `decode` understands. One that the disk does not give is an error, so that nobody goes on as
/// if there were none; one that `decode` refuses gets the name `<name>.unreadable-<number>`.
pub fn read_or_set_aside<T, E: std::fmt::Display>(
    path: &Path,
    decode: impl FnOnce(&[u8]) -> Result<T, E>,
) -> io::Result<Kept<T>> {
    let (dir, name) = match Dir::of(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::Absent),
        Err(error) => return Err(error),
    };
    let Some(bytes) = dir.read(&name)? else {
        return Ok(Kept::Absent);
    };
    let why = match decode(&bytes) {
        Ok(value) => return Ok(Kept::Whole(value)),
        Err(error) => error.to_string(),
    };
    let path = path.with_file_name(move_aside(&dir, &name)?);
    Ok(Kept::SetAside { path, why })
}

/// Gives a file that could not be understood the name `<name>.unreadable-<number>`, and says where it is.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let (dir, name) = Dir::of(path)?;
    Ok(path.with_file_name(move_aside(&dir, &name)?))
}

fn move_aside(dir: &Dir, name: &OsStr) -> io::Result<OsString> {
    for number in 1..=ASIDE_MAX {
        let mut aside = name.to_owned();
        aside.push(format!(".unreadable-{number}"));
        match dir.rename_if_free(name, &aside) {
            Ok(()) => return Ok(aside),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let text = format!(
        "{} has been damaged {ASIDE_MAX} times; look at the disk and remove the files that end in .unreadable-1 to \
         .unreadable-{ASIDE_MAX}",
        dir.path().join(name).display()
    );
    Err(io::Error::other(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<u32, String> {
        let text = String::from_utf8_lossy(bytes);
        text.parse().map_err(|_| format!("{text:?} is no number"))
    }

    #[test]
    fn a_damaged_file_is_put_aside_each_time_and_never_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept.json");
        assert_eq!(read_or_set_aside(&path, number).unwrap(), Kept::Absent);
        assert_eq!(
            read_or_set_aside(&dir.path().join("none/kept.json"), number).unwrap(),
            Kept::Absent
        );
        std::fs::write(&path, "7").unwrap();
        assert_eq!(read_or_set_aside(&path, number).unwrap(), Kept::Whole(7));
        for (at, damaged) in ["", "7x"].into_iter().enumerate() {
            std::fs::write(&path, damaged).unwrap();
            let kept = read_or_set_aside(&path, number).unwrap();
            let Kept::SetAside { path: aside, why } = kept else {
                panic!("{damaged:?}: {kept:?}")
            };
            assert_eq!(aside, dir.path().join(format!("kept.json.unreadable-{}", at + 1)));
            assert!(why.contains("no number"), "{why}");
            assert_eq!(std::fs::read_to_string(aside).unwrap(), damaged);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_file_that_the_disk_does_not_give_is_an_error_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept.json");
        // A folder in its place is opened and cannot be read.
        std::fs::create_dir(&path).unwrap();
        assert!(read_or_set_aside(&path, number).is_err());
        assert!(path.is_dir());
    }

    #[test]
    fn what_was_put_aside_is_told() {
        let aside = Kept::<u32>::SetAside {
            path: "/x".into(),
            why: "bad".into(),
        };
        let mut told = None;
        assert_eq!(
            aside.or_tell(|path, why| told = Some(format!("{} {why}", path.display()))),
            None
        );
        assert_eq!(told.as_deref(), Some("/x bad"));
        assert_eq!(Kept::Whole(7).or_tell(|_, _| panic!("nothing to tell")), Some(7));
    }
}
