//! Modes that watch nothing: doctor, topology, lists, documents.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use super::{print, terminal_width};
use crate::calibrate::store::{self, Wanted};
use crate::cli::{Document, Listing, ReportFormat};
use crate::collect::nodes::NodeReader;
use crate::collect::turns::tiers;
use crate::host::roots::Roots;
use crate::list::{self, registers};
use crate::model::inputs::Inputs;
use crate::pmu::open::try_event;
use crate::program::output::Form;
use crate::tui::input::keymap::KEYS;
use crate::{doctor, options};

pub(super) fn doctor(format: ReportFormat, all: bool, host_root: Option<&Path>) -> Result<ExitCode> {
    if let Some(root) = host_root {
        let name = crate::text::clean_str(&root.to_string_lossy());
        // Probes are tried on this kernel.
        ensure!(
            Roots::new(Path::new("/"), root).machine == root,
            "{name} contains no sys/devices/system/cpu and proc/stat (--host-root)"
        );
        if let Some(why) = crate::host::topology::differs_from_kernel(&crate::host::topology::read(root)?) {
            bail!("{name} is another machine: {why}; topology --host-root shows that machine");
        }
    }
    let report = doctor::Report::gather(host_root);
    match format {
        ReportFormat::Text => print(&doctor::render_text(&report, terminal_width(), all), Form::Text)?,
        ReportFormat::Json => print(&format!("{:#}\n", doctor::render_json(&report)), Form::Json)?,
    }
    Ok(report.exit().into())
}

pub(super) fn topology(format: ReportFormat, host_root: Option<&Path>, profile: &Wanted) -> Result<ExitCode> {
    let root = host_root.unwrap_or(Path::new("/"));
    let topology = crate::host::topology::read(root)?;
    let mut inputs = Inputs::default();
    // A kernel without tiers has nothing to show.
    let _ = tiers::look(root, &topology, &mut inputs);
    let (stored, notes) = store::find(profile, &topology);
    match format {
        ReportFormat::Text => {
            let width = terminal_width();
            let mut text = list::topology::render_text(&topology, width) + "\n";
            let tiers = list::topology::tiers_as_text(&inputs, width);
            if !tiers.is_empty() {
                text += &format!("{tiers}\n");
            }
            text += &list::measured::render_text(stored.as_ref(), width);
            text.extend(notes.iter().map(|note| format!("note: {note}\n")));
            print(&text, Form::Text)?;
        }
        ReportFormat::Json => {
            let mut object = list::topology::render_json(&topology);
            let nodes = NodeReader::open(root, &topology).and_then(|mut nodes| nodes.read());
            list::topology::add_pages(&mut object, &nodes.unwrap_or_default());
            list::topology::add_tiers(&mut object, &inputs);
            object["measured"] = list::measured::render_json(stored.as_ref());
            print(&format!("{object:#}\n"), Form::Json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn generate(what: Document) -> Result<ExitCode> {
    let described = KEYS.iter().filter(|binding| !binding.help.is_empty());
    let keys: Vec<(String, &str)> = described.map(|binding| (binding.names(), binding.help)).collect();
    let text = what.render(&keys).context("creating the document")?;
    print(&String::from_utf8(text).context("the document is not UTF-8")?, Form::Text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn list(what: &Listing) -> Result<ExitCode> {
    let text = match what {
        // For grep a metric is one line.
        Listing::Metrics if !io::stdout().is_terminal() => registers::metrics(usize::MAX),
        Listing::Metrics => registers::metrics(terminal_width()),
        Listing::Findings => registers::rules(terminal_width()),
        Listing::Events(tables) => {
            let root = Path::new("/");
            let catalog = options::marked_catalog(root, tables.pmu_dir.as_deref())?;
            let choose = |set: &str| options::choose(root, &catalog, set).unwrap_or_default();
            let budget = options::budget(root, &catalog);
            registers::events(&catalog, budget, &try_event, &choose, terminal_width())
        }
    };
    print(&text, Form::Text)?;
    Ok(ExitCode::SUCCESS)
}
