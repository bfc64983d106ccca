//! Programs with two regions: the way they access memory, threads, pages, and the kind of memory.

use clap::ValueEnum;

/// Ways of accessing memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Random,
    Dependent,
    Stores,
    ReadModifyWrite,
    /// Pages by Zipf's law with this exponent: 0, 0.9, 1.2.
    Zipf0,
    Zipf09,
    Zipf12,
    /// 95 % of accesses go to this percentage of all pages, which are in the first region.
    Hot1,
    Hot5,
    Hot20,
    Streams,
    Lists,
    /// Each region has separate code.
    OwnCode,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Random => "random loads",
            Kind::Dependent => "dependent loads",
            Kind::Stores => "random stores",
            Kind::ReadModifyWrite => "read, modify, write",
            Kind::Zipf0 => "Zipf 0",
            Kind::Zipf09 => "Zipf 0.9",
            Kind::Zipf12 => "Zipf 1.2",
            Kind::Hot1 => "hot set of 1 %",
            Kind::Hot5 => "hot set of 5 %",
            Kind::Hot20 => "hot set of 20 %",
            Kind::Streams => "streams",
            Kind::Lists => "lists, in runs",
            Kind::OwnCode => "code of its own by region",
        }
    }

    /// The exponent of its law.
    pub fn zipf(self) -> Option<f64> {
        match self {
            Kind::Zipf0 => Some(0.0),
            Kind::Zipf09 => Some(0.9),
            Kind::Zipf12 => Some(1.2),
            _ => None,
        }
    }

    /// The share of all pages that is hot.
    pub fn hot(self) -> Option<f64> {
        match self {
            Kind::Hot1 => Some(0.01),
            Kind::Hot5 => Some(0.05),
            Kind::Hot20 => Some(0.2),
            _ => None,
        }
    }

    /// Whether it is measured in phases, each of one region.
    pub fn has_phases(self) -> bool {
        self != Kind::OwnCode
    }

    /// Whether it is measured with a region that is chosen before each access.
    pub fn is_mixed(self) -> bool {
        !matches!(self, Kind::Streams | Kind::Lists)
    }

    /// Whether one run of an instruction does not know where the next one goes.
    pub fn is_by_count(self) -> bool {
        !matches!(self, Kind::Streams | Kind::Lists | Kind::OwnCode)
    }
}

/// Pages of the two regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// 4 KiB on x86-64.
    Small,
    Huge,
    /// Small ones in the first region, huge ones in the second.
    Both,
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backing {
    Anonymous,
    /// Shared memory.
    Shared,
    /// A file on a disk.
    File,
}

/// One program.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub kind: Kind,
    pub threads: usize,
    pub pages: Pages,
    pub backing: Backing,
    /// Accesses, or phases, of ten that go to the first region, where the kind does not decide that.
    pub tenths: u64,
}

const fn case(kind: Kind, threads: usize, pages: Pages, backing: Backing, tenths: u64) -> Case {
    Case { kind, threads, pages, backing, tenths }
}

use Backing::{Anonymous, File, Shared};
use Pages::{Both, Huge, Small};

/// All of them.
pub const CASES: &[Case] = &[
    case(Kind::Random, 1, Small, Anonymous, 9),
    case(Kind::Random, 1, Small, Anonymous, 5),
    case(Kind::Random, 1, Small, Anonymous, 1),
    case(Kind::Dependent, 1, Small, Anonymous, 9),
    case(Kind::Stores, 1, Small, Anonymous, 3),
    case(Kind::ReadModifyWrite, 1, Small, Anonymous, 9),
    case(Kind::Zipf0, 1, Small, Anonymous, 5),
    case(Kind::Zipf09, 1, Small, Anonymous, 5),
    case(Kind::Zipf12, 1, Small, Anonymous, 5),
    case(Kind::Hot1, 1, Small, Anonymous, 5),
    case(Kind::Hot5, 1, Small, Anonymous, 5),
    case(Kind::Hot20, 1, Small, Anonymous, 5),
    case(Kind::Streams, 1, Small, Anonymous, 7),
    case(Kind::Lists, 1, Small, Anonymous, 7),
    case(Kind::OwnCode, 1, Small, Anonymous, 9),
    case(Kind::Random, 8, Small, Anonymous, 9),
    case(Kind::Dependent, 8, Small, Anonymous, 1),
    case(Kind::Stores, 8, Small, Anonymous, 7),
    case(Kind::Zipf09, 8, Small, Anonymous, 5),
    case(Kind::Hot5, 8, Small, Anonymous, 5),
    case(Kind::Lists, 8, Small, Anonymous, 3),
    case(Kind::Random, 1, Huge, Anonymous, 9),
    case(Kind::Dependent, 1, Huge, Anonymous, 3),
    case(Kind::Stores, 1, Huge, Anonymous, 9),
    case(Kind::Zipf09, 1, Huge, Anonymous, 5),
    case(Kind::Random, 1, Both, Anonymous, 2),
    case(Kind::ReadModifyWrite, 1, Both, Anonymous, 5),
    case(Kind::Random, 1, Small, Shared, 9),
    case(Kind::Stores, 1, Small, Shared, 3),
    case(Kind::Zipf09, 1, Small, Shared, 5),
    case(Kind::Random, 1, Small, File, 9),
    case(Kind::Dependent, 1, Small, File, 3),
];

impl Case {
    /// Whether it is one of the few that show that all works.
    pub fn is_quick(&self) -> bool {
        self.threads == 1 && self.pages == Small && self.backing == Anonymous && self.tenths >= 7
    }

    /// Pages and kind of its memory, in words.
    pub fn memory(&self) -> String {
        let pages = match self.pages {
            Small => "small pages",
            Huge => "huge pages",
            Both => "small and huge",
        };
        match self.backing {
            Anonymous => pages.into(),
            Shared => format!("shared, {pages}"),
            File => format!("a file, {pages}"),
        }
    }
}
