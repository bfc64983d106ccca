//! Files as a machine has them, below a folder of their own, for tests.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that goes with this value.
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// An empty one; no two tests have the same name.
    pub(crate) fn new(name: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("numatop-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder is made");
        Tree(root)
    }

    /// One with these files.
    pub(crate) fn with<'a>(name: &str, files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Tree {
        let tree = Tree::new(name);
        files.into_iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    /// Writes a file, and the folders that it is in.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder is made");
        fs::write(path, text).expect("a file is written");
    }

    /// Removes all files.
    pub(crate) fn clear(&self) {
        fs::remove_dir_all(&self.0).expect("the folder is removed");
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
