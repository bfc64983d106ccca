//! Packets between the tool and a process that it started: a message, with open files.
//!
//! One packet of a `SOCK_SEQPACKET` socket is one message, so that neither side can be left in the middle of one.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a packet: less than what a socket takes by default (`net.core.wmem_default`, 212,992).
pub const PACKET_MAX: usize = 160 * 1024;

/// Open files of a packet at most.
pub const FILES_MAX: usize = 33;

/// Sends a message with open files, at most [`FILES_MAX`]. Waits for room.
///
/// # Errors
/// The errno of sendmsg(2).
pub fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "too many files for a packet"));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Waits for a message. `None` when the other side has closed its end.
///
/// # Errors
/// The errno of recvmsg(2), or the packet is no such message.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<File>)>> {
    let mut bytes = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
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
    let files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.map(File::from).collect::<Vec<File>>(),
        _ => Vec::new(),
    });
    let files = files.collect();
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, files)))
}
