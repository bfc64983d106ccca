//! A file that takes the place of another as a whole: a reader never sees half of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes a file that was not there. The folder may be another user's, who knows the name: a link or a pipe of theirs is
/// removed, and never written to.
fn new_file(path: &Path) -> io::Result<File> {
    let make = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            make()
        }
        made => made,
    }
}

/// Puts a file of `text` in the place of `path`. Everybody may read it.
///
/// # Errors
/// The errno of the write beside it, or of the rename; nothing is left behind then.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let mut file = new_file(&temporary)?;
    let written = file
        .set_permissions(fs::Permissions::from_mode(0o644))
        .and_then(|()| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_under_the_name_of_the_new_file_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("numatop-whole-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (target, path) = (folder.join("target"), folder.join("a.prom"));
        fs::write(&target, "theirs").unwrap();
        std::os::unix::fs::symlink(&target, folder.join(format!("a.prom.{}.tmp", std::process::id())))
            .unwrap();
        replace(&path, "ours").unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((read(&target), read(&path)), ("theirs".to_owned(), "ours".to_owned()));
        assert!(!path.symlink_metadata().unwrap().is_symlink());
        fs::remove_dir_all(&folder).unwrap();
    }
}
