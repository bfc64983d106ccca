//! The process that looks for names of containers: it reads files of users and waits for runtimes, which the tool's own
//! threads never do. A home that does not answer costs the names of its user.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::names::{ContainerNames, Name};
use crate::model::group::Engine;
use crate::program::helper;

/// The name under which the tool starts itself to look for names of containers.
pub const NAME: &str = "numatop-ng-containers";

/// Containers asked about together: their names fit one packet.
pub(super) const BATCH: usize = 64;

/// Containers and pods of one owner that are looked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Question {
    /// The root that files are below.
    pub root: PathBuf,
    /// The user in whose home names are; `None`: those of engines of the system.
    pub owner: Option<u32>,
    /// Runtimes that are asked, instead of files being read.
    pub sockets: Vec<PathBuf>,
    pub containers: Vec<(Engine, String)>,
    /// Uids of pods.
    pub pods: Vec<String>,
}

/// Names that were found, by place in the lists of the question.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    pub containers: Vec<Option<Name>>,
    pub pods: Vec<Option<Name>>,
    /// Why names are missing.
    pub troubles: Vec<String>,
}

/// Answers questions until the input ends.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(c"nng-containers");
    let mut books: HashMap<(PathBuf, Vec<PathBuf>), ContainerNames> = HashMap::new();
    helper::serve(
        NAME,
        || Ok(()),
        |question: Question, _| {
            let book = books
                .entry((question.root.clone(), question.sockets.clone()))
                .or_insert_with(|| ContainerNames::new(&question.root).asking(&question.sockets));
            answer(book, &question)
        },
    )
}

fn answer(book: &mut ContainerNames, question: &Question) -> Answer {
    book.renew_budgets();
    let mut find = |(engine, id): &(Engine, String)| match question.sockets.is_empty() {
        true => book.in_files(*engine, id, question.owner),
        false => book.of_runtimes(id),
    };
    let containers = question.containers.iter().map(&mut find).collect();
    let pods = question.pods.iter().map(|uid| book.pod(uid)).collect();
    Answer { containers, pods, troubles: book.take_troubles() }
}
