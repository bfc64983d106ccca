//! Switches of the kernel that a case changes, and that are as before when it is over.

use crate::sysfs;

/// A file of one value. Its old value is written back when this is dropped.
pub struct Setting {
    path: String,
    before: String,
}

impl Setting {
    pub fn begin(path: impl Into<String>, value: &str) -> Result<Setting, String> {
        let path = path.into();
        let text = sysfs::read(&path)?;
        // Some list all choices, with the current one in brackets.
        let chosen =
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
        let setting = Setting { path, before: chosen.unwrap_or(&text).to_owned() };
        setting.set(value)?;
        Ok(setting)
    }

    pub fn set(&self, value: &str) -> Result<(), String> {
        sysfs::write(&self.path, value)
    }

    pub fn get(&self) -> Result<String, String> {
        sysfs::read(&self.path)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = self.set(&self.before);
    }
}
