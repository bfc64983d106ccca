//! Events as users type them: a name, a raw number, or terms of a PMU, each with the part of the work that is counted.
//!
//! The forms are those of perf-record(1): `NAME`, `rNNNN`, `PMU/NAME/`, `PMU/term=value,…/`, and the modifiers `:u` and `:k`.

#![warn(missing_docs)]

use std::path::Path;

use super::catalog::Catalog;
use super::device::{Device, Terms, Words};
use crate::model::event::{Encoding, Event, Mode};

/// `perf_event_attr.type` of a number that the PMU of the cores defines (PERF_TYPE_RAW).
const RAW: u32 = 4;

/// The way in which an event is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// A name of the kernel, or of a CPU vendor.
    Name(&'a str),
    /// `config` of the PMU of the cores.
    Raw(u64),
    /// Terms of the PMU with this name.
    Terms {
        /// The name of the PMU, or of several that differ in a number at the end.
        pmu: &'a str,
        /// The text between the slashes.
        terms: &'a str,
    },
}

/// An event as it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typed<'a> {
    /// The whole text.
    pub text: &'a str,
    /// Without modifiers.
    pub form: Form<'a>,
    /// The part of the work that is counted.
    pub mode: Mode,
}

/// The parts of a list with commas between them. A comma between two slashes is part of an event.
pub fn split(list: &str) -> Vec<&str> {
    let mut within = false;
    let parts = list.split(move |c: char| {
        within ^= c == '/';
        c == ',' && !within
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

impl<'a> Typed<'a> {
    /// # Errors
    /// A modifier that has no meaning for counting, or a slash that is not closed.
    pub fn parse(text: &'a str) -> Result<Typed<'a>, String> {
        if let Some((pmu, rest)) = text.split_once('/') {
            let (terms, after) =
                rest.rsplit_once('/').ok_or_else(|| format!("'{text}': the second slash is missing"))?;
            let mode = mode(after.strip_prefix(':').unwrap_or(after))?;
            return Ok(Typed { text, form: Form::Terms { pmu, terms }, mode });
        }
        let (name, mode) = match text.split_once(':') {
            Some((name, modifiers)) => (name, mode(modifiers)?),
            None => (text, Mode::Both),
        };
        let raw = name.strip_prefix('r').and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Ok(Typed { text, form: raw.map_or(Form::Name(name), Form::Raw), mode })
    }

    /// The event that raw numbers or terms name on this machine. Where cores differ, it has numbers for each kind.
    ///
    /// # Errors
    /// The machine has no such PMU, the PMU has no such term or event, or it does not count tasks.
    pub fn encoded(&self, catalog: &Catalog) -> Result<Event, String> {
        let root = catalog.root.as_path();
        let cores: Vec<&Device> = catalog.cores.iter().filter_map(|core| core.device.as_ref()).collect();
        let mut encodings = match self.form {
            Form::Name(name) => return Err(format!("'{name}' is not a name")),
            Form::Raw(config) => {
                let of = |core: &&Device| (core.kind, [config, 0, 0], core.cpus.clone());
                let found: Vec<_> = cores.iter().map(of).collect();
                if found.is_empty() { vec![(RAW, [config, 0, 0], None)] } else { found }
            }
            Form::Terms { pmu, terms } => {
                let devices = devices(root, pmu, &cores)?;
                let of =
                    |device: &Device| Ok((device.kind, words(root, device, terms)?, device.cpus.clone()));
                devices.iter().map(of).collect::<Result<Vec<_>, String>>()?
            }
        };
        let (kind, [config, config1, config2], cpus) = encodings.remove(0);
        let elsewhere = encodings
            .into_iter()
            .map(|(kind, config, cpus)| Encoding { kind, config, cpus: cpus.unwrap_or_default() })
            .collect();
        let name = self.text.to_owned();
        Ok(Event {
            name,
            kind,
            config,
            config1,
            config2,
            cpus,
            elsewhere,
            mode: self.mode,
            ..Event::default()
        })
    }

    /// Whether it needs one of the two offcore-response registers of a hardware thread.
    pub fn uses_offcore(&self) -> bool {
        matches!(self.form, Form::Terms { terms, .. } if terms.contains("offcore_rsp"))
    }
}

/// The part of the work that these modifiers ask for.
fn mode(modifiers: &str) -> Result<Mode, String> {
    let has = |letter| modifiers.contains(letter);
    if let Some(other) = modifiers.chars().find(|letter| !['u', 'k'].contains(letter)) {
        return Err(format!("':{other}' is not a modifier: use :u for user mode, :k for the kernel"));
    }
    Ok(match (has('u'), has('k')) {
        (true, false) => Mode::User,
        (false, true) => Mode::Kernel,
        _ => Mode::Both,
    })
}

/// The PMUs with this name: of cores, or others that count tasks. As in perf, `cpu` means the cores of every
/// kind, and `armv8_pmuv3` means `armv8_pmuv3_0`.
fn devices(root: &Path, pmu: &str, cores: &[&Device]) -> Result<Vec<Device>, String> {
    let numbered = |device: &Device| {
        let number = device.name.strip_prefix(pmu).and_then(|rest| rest.strip_prefix('_'));
        number.is_some_and(|number| number.bytes().all(|c| c.is_ascii_digit()))
    };
    let picks: [&dyn Fn(&Device) -> bool; 3] = [&|device| device.name == pmu, &numbered, &|_| pmu == "cpu"];
    for fits in picks {
        let found: Vec<Device> =
            cores.iter().filter(|device| fits(device)).map(|device| (*device).clone()).collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Device::of_tasks(root, pmu).map(|device| vec![device])
}

/// The words that these terms have on a PMU: terms with values, terms alone, which are set, and names of its events.
fn words(root: &Path, device: &Device, text: &str) -> Result<Words, String> {
    let mut direct: Words = [0; 3];
    let mut terms: Vec<(String, u64)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
        match (["config", "config1", "config2"].iter().position(|word| *word == name), value) {
            (Some(word), Some(value)) => direct[word] |= Terms::number(value)?,
            (_, Some(value)) => put(&mut terms, name, Terms::number(value)?),
            (_, None) if device.format.has(name) => put(&mut terms, name, 1),
            (_, None) => {
                for (name, value) in device.event(root, name)? {
                    put(&mut terms, &name, value);
                }
            }
        }
    }
    let encoded = device.format.encode(&Terms::new(terms)).map_err(|why| {
        format!("PMU {}: {why}; it has {}", device.name, device.format.terms().collect::<Vec<_>>().join(", "))
    })?;
    Ok(std::array::from_fn(|word| encoded[word] | direct[word]))
}

/// Sets a term; the last one wins, as in `cpu/mem-loads,ldlat=30/`.
fn put(terms: &mut Vec<(String, u64)>, name: &str, value: u64) {
    terms.retain(|(known, _)| known != name);
    terms.push((name.to_owned(), value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_between_slashes_is_part_of_an_event() {
        let list = " cycles, cpu/event=0x3c,umask=0x0/u,r1a8:k ,, LLC-loads";
        assert_eq!(split(list), ["cycles", "cpu/event=0x3c,umask=0x0/u", "r1a8:k", "LLC-loads"]);
    }

    #[test]
    fn forms_and_modifiers_are_told_apart() {
        let of = |text| Typed::parse(text).map(|typed| (typed.form, typed.mode));
        assert_eq!(of("ref-cycles"), Ok((Form::Name("ref-cycles"), Mode::Both)));
        assert_eq!(of("cycles:u"), Ok((Form::Name("cycles"), Mode::User)));
        assert_eq!(of("r01c2:k"), Ok((Form::Raw(0x1c2), Mode::Kernel)));
        let terms = Form::Terms { pmu: "cpu", terms: "event=0x3c" };
        assert_eq!(of("cpu/event=0x3c/uk"), Ok((terms, Mode::Both)));
        assert!(of("cycles:pp").unwrap_err().contains("':p'"));
        assert!(of("cpu/event=1").unwrap_err().contains("second slash"));
    }
}
