//! Questions to the symbolizer, each about an open file, and their answers.

use serde::{Deserialize, Serialize};

/// Places in one question. Their names fit one packet, whatever is in them.
pub const PLACES_MAX: usize = 32;

/// A question about the file that comes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The build id of an ELF file and where its split symbols are.
    Identify,
    /// The functions at these offsets into an ELF file.
    Offsets(Vec<u64>),
    /// The functions at these addresses, as the symbols of an ELF file have them.
    Addresses(Vec<u64>),
    /// The functions at these addresses of the process that wrote this perf map.
    PerfMap(Vec<u64>),
    /// The functions at these addresses of the kernel; the file is `/proc/kallsyms`.
    Kernel(Vec<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// `None`: no 64-bit ELF file of this machine's byte order with a build id.
    Identity(Option<Identity>),
    /// One for each place of the question, in its order.
    Found(Vec<Found>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Shorter ids are filled with zeros.
    pub build_id: [u8; 20],
    /// The name in `.gnu_debuglink`.
    pub link: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Clean, and not longer than a line.
    pub name: Option<String>,
    /// The module of a kernel function, or the reason for which one of a file has no name; clean.
    pub module: Option<String>,
    /// The address that symbols have for an offset into an ELF file.
    pub address: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;
    use crate::program::helper::{receive, send};

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
    }

    #[test]
    fn a_question_arrives_with_its_file() {
        let (ours, theirs) = pair();
        let question = Question::Offsets(vec![1, u64::MAX]);
        let file = File::open("/proc/self/exe").unwrap();
        send(&ours, &question, &[file.as_fd()]).unwrap();
        let (arrived, files) = receive::<Question>(&theirs).unwrap().unwrap();
        assert_eq!(arrived, question);
        let mut magic = [0; 4];
        (&files[0]).read_exact(&mut magic).unwrap();
        assert_eq!(&magic, b"\x7fELF");
        drop(ours);
        assert_eq!(receive::<Question>(&theirs).unwrap().map(|(question, _)| question), None);
    }

    #[test]
    fn the_longest_answer_fits_a_packet() {
        let (ours, theirs) = pair();
        let longest = "\\".repeat(super::super::NAME_MAX);
        let found = Found { name: Some(longest.clone()), module: Some(longest), address: Some(u64::MAX) };
        let answer = Answer::Found(vec![found; PLACES_MAX]);
        send(&ours, &answer, &[]).unwrap();
        assert_eq!(receive::<Answer>(&theirs).unwrap().unwrap().0, answer);
    }
}
