//! A small file of the kernel that is opened once and read again with each sample: opening it costs more than reading it.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::PathBuf;

/// Opened with the first reading.
pub(super) struct KeptFile {
    path: PathBuf,
    file: Option<File>,
    text: String,
}

impl KeptFile {
    /// Nothing is opened yet.
    pub(super) fn new(path: PathBuf) -> KeptFile {
        KeptFile { path, file: None, text: String::new() }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The errno of open(2).
    pub(super) fn open(path: PathBuf) -> io::Result<KeptFile> {
        let file = Some(File::open(&path)?);
        Ok(KeptFile { path, file, text: String::new() })
    }

    /// Its content now. After an error it is opened again.
    ///
    /// # Errors
    /// The errno of open(2) or read(2); `InvalidData` where it is no text.
    pub(super) fn read(&mut self) -> io::Result<&str> {
        let result = self.fill();
        if result.is_err() {
            self.file = None;
        }
        result.map(|()| self.text.as_str())
    }

    fn fill(&mut self) -> io::Result<()> {
        self.text.clear();
        let file = match &mut self.file {
            Some(file) => {
                file.rewind()?;
                file
            }
            none => none.insert(File::open(&self.path)?),
        };
        file.read_to_string(&mut self.text).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn it_is_as_it_is_now() {
        let tree = Tree::new("kept-file");
        let mut file = KeptFile::new(tree.root().join("value"));
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        tree.write("value", "one\n");
        assert_eq!(file.read().unwrap(), "one\n");
        tree.write("value", "2\n");
        assert_eq!(file.read().unwrap(), "2\n");
        tree.clear();
    }
}
