//! PMUs of CPU cores below /sys/bus/event_source/devices, and the way from the terms of an event to the words of perf_event_attr.
//!
//! A PMU describes in sysfs where each term goes (`format/umask`: `config:8-15,40-47`), so the same terms are
//! right when a new kernel moves the bits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::host::fact;
use crate::model::topology::parse_cpulist;
use crate::model::units::CpuId;
use crate::text::nearest;

const DEVICES: &str = "sys/bus/event_source/devices";

/// The PMU of all cores, or of those of one kind.
#[derive(Clone, Debug)]
pub struct Device {
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// The CPUs that have it; `None` for all.
    pub cpus: Option<Vec<CpuId>>,
    pub format: Format,
    /// Names below `events`.
    pub advertised: BTreeSet<String>,
    /// Whether it has a `caps` folder with its issue slots: PMUs of Arm cores, since Linux 5.10.
    pub has_caps: bool,
}

impl Device {
    /// The core PMUs of the machine below `root`, by name: none where a hypervisor offers none.
    pub fn read_all(root: &Path) -> Vec<Device> {
        let mut names: Vec<String> = list(&root.join(DEVICES)).into_iter().collect();
        names.sort_unstable();
        names.iter().filter_map(|name| Device::read(root, name)).collect()
    }

    /// `None` if it is not a PMU of cores. PMUs of cores have a list of `cpus`, or the name of the only one
    /// on x86. Others (memory controllers, caches, SPE) have a `cpumask` with the CPUs to open them on.
    fn read(root: &Path, name: &str) -> Option<Device> {
        let path = format!("{DEVICES}/{name}");
        let cpus = fact::text(root, &format!("{path}/cpus")).ok();
        if cpus.is_none() && name != "cpu" {
            return None;
        }
        let kind = fact::text(root, &format!("{path}/type")).ok()?.parse().ok()?;
        let cpus = match cpus {
            Some(text) => Some(parse_cpulist(&text).ok()?.into_iter().map(CpuId).collect()),
            None => None,
        };
        Some(Device::with(root, name, kind, cpus))
    }

    fn with(root: &Path, name: &str, kind: u32, cpus: Option<Vec<CpuId>>) -> Device {
        let dir = root.join(DEVICES).join(name);
        Device {
            name: name.to_string(),
            kind,
            cpus,
            format: Format::read(&dir.join("format")).unwrap_or_default(),
            advertised: list(&dir.join("events")),
            has_caps: dir.join("caps/slots").exists(),
        }
    }

    /// A PMU beside those of cores that counts tasks on each CPU, as `msr` does.
    ///
    /// # Errors
    /// No device has this name, or it counts for a whole socket or device.
    pub fn of_tasks(root: &Path, name: &str) -> Result<Device, String> {
        let path = format!("{DEVICES}/{name}");
        // A path component, and no way out of the folder.
        let kind = (!name.is_empty() && !name.starts_with('.'))
            .then(|| fact::text(root, &format!("{path}/type")).ok()?.parse().ok())
            .flatten();
        let Some(kind) = kind else {
            let known: Vec<String> = list(&root.join(DEVICES)).into_iter().collect();
            let known = if known.is_empty() { "no PMU".into() } else { known.join(", ") };
            return Err(format!("the kernel has no PMU '{name}', only {known}"));
        };
        if root.join(&path).join("cpumask").exists() {
            return Err(format!("the PMU {name} counts for a whole socket or device, not for tasks"));
        }
        Ok(Device::with(root, name, kind, None))
    }

    /// A PMU that counts for a whole socket or device. Its CPUs are those of its `cpumask`, on which it is opened: none where
    /// all CPUs of its socket are offline.
    ///
    /// # Errors
    /// A file cannot be read, or has another form.
    pub fn of_machine(root: &Path, name: &str) -> Result<Device, String> {
        let path = format!("{DEVICES}/{name}");
        let kind = fact::text(root, &format!("{path}/type"))?;
        let kind = kind.parse().map_err(|_| format!("{name}: '{kind}' is not a type of events"))?;
        let mask = fact::text(root, &format!("{path}/cpumask"))?;
        let cpus = parse_cpulist(&mask).map_err(|_| format!("{name}: '{mask}' is not a list of CPUs"))?;
        Ok(Device::with(root, name, kind, Some(cpus.into_iter().map(CpuId).collect())))
    }

    /// All PMUs of the machine below `root`, by name.
    pub fn names(root: &Path) -> BTreeSet<String> {
        list(&root.join(DEVICES))
    }

    /// Text of a file beside an event that the kernel names: `unit` or `scale`.
    ///
    /// # Errors
    /// The path and the errno, as text.
    pub fn event_text(&self, root: &Path, event: &str, file: &str) -> Result<String, String> {
        fact::text(root, &format!("{DEVICES}/{}/events/{event}.{file}", self.name))
    }

    /// The terms of an event that the kernel names for this PMU.
    ///
    /// # Errors
    /// It has no event with this name, or the kernel's terms cannot be parsed.
    pub fn event(&self, root: &Path, name: &str) -> Result<Vec<(String, u64)>, String> {
        if !self.advertised.contains(name) {
            let known = nearest::to(name, self.advertised.iter().map(String::as_str));
            let hint = nearest::hint(&known);
            return Err(format!("the PMU {} has neither a term nor an event '{name}'{hint}", self.name));
        }
        let text = fact::text(root, &format!("{DEVICES}/{}/events/{name}", self.name))?;
        let set = |part: &str| if part.contains('=') { part.to_owned() } else { format!("{part}=1") };
        let text: Vec<String> = text.split(',').map(set).collect();
        let terms = Terms::parse(&text.join(","));
        terms.map(Terms::into_pairs).map_err(|why| format!("PMU {}, event {name}: {why}", self.name))
    }
}

fn list(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The three words of perf_event_attr that a PMU defines: config, config1, config2.
pub type Words = [u64; 3];

/// Where the bits of one term go: the word, and inclusive ranges of its bits, lowest bits of the value first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    word: usize,
    bits: Vec<(u32, u32)>,
}

/// Terms and values as in perf: `event=0xb7,umask=0x01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms(Vec<(String, u64)>);

impl Terms {
    /// # Errors
    /// A term without a number, or one that is named twice.
    pub fn parse(text: &str) -> Result<Terms, String> {
        let mut terms: Vec<(String, u64)> = Vec::new();
        for part in text.split(',') {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("'{part}' does not have the form term=value"))?;
            let value = Terms::number(value)?;
            if terms.iter().any(|(known, _)| known == name) {
                return Err(format!("'{name}' is given twice"));
            }
            terms.push((name.to_string(), value));
        }
        Ok(Terms(terms))
    }

    /// These terms, each named once.
    pub fn new(terms: Vec<(String, u64)>) -> Terms {
        Terms(terms)
    }

    /// A number as perf takes it: decimal, or hexadecimal after 0x.
    ///
    /// # Errors
    /// It is none.
    pub fn number(text: &str) -> Result<u64, String> {
        let number = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        number.map_err(|_| format!("'{text}' is not a number"))
    }

    /// Terms with their values, in their order.
    pub fn into_pairs(self) -> Vec<(String, u64)> {
        self.0
    }

    /// The value of a term.
    pub fn value(&self, term: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| name == term).map(|(_, value)| *value)
    }

    /// True when the event needs one of the two offcore-response registers of the hardware thread.
    pub fn uses_offcore(&self) -> bool {
        self.value("offcore_rsp").is_some()
    }
}

/// The terms of a PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format(BTreeMap<String, Field>);

impl Format {
    /// Reads the `format` folder of a PMU; what cannot be understood is left out, and so refused when used.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read(dir: &Path) -> Result<Format, String> {
        let why = |error: std::io::Error| format!("{}: {error}", dir.display());
        let mut fields = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(why)? {
            let entry = entry.map_err(why)?;
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            if let Some(field) = field(text.trim()) {
                fields.insert(entry.file_name().to_string_lossy().into_owned(), field);
            }
        }
        Ok(Format(fields))
    }

    /// Whether the PMU has this term.
    pub fn has(&self, term: &str) -> bool {
        self.0.contains_key(term)
    }

    /// The terms of the PMU, by name.
    pub fn terms(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The words for `terms`.
    ///
    /// # Errors
    /// A term that the PMU does not have, or whose value is too large for it.
    pub fn encode(&self, terms: &Terms) -> Result<Words, String> {
        let mut words = [0; 3];
        for (name, value) in &terms.0 {
            let field = self.0.get(name).ok_or_else(|| format!("the PMU has no term '{name}'"))?;
            let mut rest = *value;
            for (first, last) in &field.bits {
                let width = last - first + 1;
                let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
                words[field.word] |= (rest & mask) << first;
                rest = if width == 64 { 0 } else { rest >> width };
            }
            if rest != 0 {
                return Err(format!("{name}={value:#x} is too large for the PMU"));
            }
        }
        Ok(words)
    }
}

fn field(text: &str) -> Option<Field> {
    let (word, ranges) = text.split_once(':')?;
    let word = ["config", "config1", "config2"].iter().position(|known| *known == word)?;
    let range = |text: &str| -> Option<(u32, u32)> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < 64).then_some((first, last))
    };
    let bits: Option<Vec<(u32, u32)>> = ranges.split(',').map(range).collect();
    Some(Field { word, bits: bits? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(fields: &[(&str, &str)]) -> Format {
        Format(fields.iter().map(|(name, text)| (name.to_string(), field(text).unwrap())).collect())
    }

    #[test]
    fn a_term_may_be_in_pieces() {
        let amd = format(&[("event", "config:0-7,32-35"), ("umask", "config:8-15")]);
        let words = amd.encode(&Terms::parse("event=0x1a0,umask=0x1e").unwrap()).unwrap();
        assert_eq!(words, [0x1_0000_1ea0, 0, 0]);
    }

    #[test]
    fn a_term_may_be_a_word_of_its_own() {
        let intel = format(&[("event", "config:0-7"), ("offcore_rsp", "config1:0-63")]);
        let words = intel.encode(&Terms::parse("event=0xb7,offcore_rsp=0x104000477").unwrap()).unwrap();
        assert_eq!(words, [0xb7, 0x1_0400_0477, 0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let narrow = format(&[("event", "config:0-7")]);
        let refused = |terms: &str| narrow.encode(&Terms::parse(terms).unwrap()).unwrap_err();
        assert!(refused("event=0x1a0").contains("too large"));
        assert!(refused("event=0xa0,umask=0x1").contains("'umask'"));
    }

    #[test]
    fn damaged_formats_and_terms_are_no_panic() {
        for text in
            ["", "config", "config:", "config:8-", "config:9-8", "config:0-64", "config9:0-7", "config:a"]
        {
            assert_eq!(field(text), None, "{text}");
        }
        for text in ["", "event", "event=", "event=0x", "event=1,event=2", "event=-1"] {
            assert!(Terms::parse(text).is_err(), "{text}");
        }
    }
}
