//! The packets between the tool and its symbolizer: a question with an open file, and its answer.
//!
//! One packet of a `SOCK_SEQPACKET` socket is one message, so that neither side can be left in the middle of one.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Places in one question. Their names fit one packet, whatever is in them.
pub const PLACES_MAX: usize = 32;

/// Bytes of a packet: less than what a socket takes by default (`net.core.wmem_default`, 212,992).
const PACKET_MAX: usize = 160 * 1024;

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
    /// The module of a kernel function; clean.
    pub module: Option<String>,
    /// The address that symbols have for an offset into an ELF file.
    pub address: Option<u64>,
}

/// Sends a message, and an open file with it. Waits until there is room.
///
/// # Errors
/// What sendmsg(2) returned.
pub fn send(socket: impl AsFd, message: &impl Serialize, file: Option<&File>) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let fds: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Waits for a message. `None` when the other side has closed its end.
///
/// # Errors
/// What recvmsg(2) returned, or that the packet is no such message.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Option<File>)>> {
    let mut bytes = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(ErrorKind::InvalidData, "a packet that is too long"));
    }
    let mut fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<OwnedFd>>(),
        _ => Vec::new(),
    });
    let file = fds.next().map(File::from);
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, file)))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
    }

    #[test]
    fn a_question_arrives_with_its_file() {
        let (ours, theirs) = pair();
        let question = Question::Offsets(vec![1, u64::MAX]);
        send(&ours, &question, Some(&File::open("/proc/self/exe").unwrap())).unwrap();
        let (arrived, file) = receive::<Question>(&theirs).unwrap().unwrap();
        assert_eq!(arrived, question);
        let mut magic = [0; 4];
        file.unwrap().read_exact(&mut magic).unwrap();
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
        send(&ours, &answer, None).unwrap();
        assert_eq!(receive::<Answer>(&theirs).unwrap().unwrap().0, answer);
    }
}
