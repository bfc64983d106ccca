//! Traffic of IP sockets is counted of the process that reads and sends it, to the byte; loopback is not.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio, id};

use anyhow::{Context, Error, Result, ensure};

use numatop_ng::metric::sockets::sums;
use numatop_ng::model::sockets::{SocketSums, SocketUse};
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};

use crate::sample;

const BYTES: usize = 1000;
const PACKETS: u64 = 300;

/// Sums of a process for what `work` does.
fn counted(pid: u32, work: impl FnOnce() -> Result<()>) -> Result<SocketSums> {
    let mut source = LiveSource::start(LiveOptions::default())?;
    let before = sample(&mut source)?;
    work()?;
    let after = sample(&mut source)?;
    let snapshot = derive(&source.host(), Some(&before), &after, RowKind::Processes);
    let own = snapshot.tasks.iter().find(|task| task.raw.pid == pid).context("no row of the process")?;
    sums(own, &snapshot).map_err(Error::msg)
}

/// Sends packets from one socket to the other, and reads them there twice: the first time without taking them.
fn exchange(from: &UdpSocket, to: &UdpSocket) -> Result<()> {
    let (packet, mut buffer) = ([7; BYTES], [0; 2 * BYTES]);
    for _ in 0..PACKETS {
        from.send(&packet)?;
        to.peek(&mut buffer)?;
        ensure!(to.recv(&mut buffer)? == BYTES, "a packet was cut");
    }
    Ok(())
}

pub fn loopback_does_not_count() -> Result<()> {
    let (one, other) =
        (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    let sums = counted(id(), || exchange(&one, &other))?;
    ensure!(sums == SocketSums::default(), "{sums:?}");
    Ok(())
}

/// A program with its own network namespace and TUN device. It writes packets to the device, reads them from a socket, and
/// sends half of each packet back.
const PROGRAM: &str = r"
import fcntl, os, socket, struct, subprocess, sys
packets, size = int(sys.argv[1]), int(sys.argv[2])
device = os.open('/dev/net/tun', os.O_RDWR)
IFF_TUN_NO_PI, TUNSETIFF = 0x1001, 0x400454ca
fcntl.ioctl(device, TUNSETIFF, struct.pack('16sH22x', b'nng0', IFF_TUN_NO_PI))
subprocess.run('ip addr add 198.18.77.1/30 dev nng0 && ip link set nng0 up', shell=True, check=True)
here, there = ('198.18.77.1', 9000), ('198.18.77.2', 9001)
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.bind(here)
reader.connect(there)
def ones(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def header(check):
    addresses = socket.inet_aton(there[0]) + socket.inet_aton(here[0])
    return struct.pack('!BBHHHBBH', 0x45, 0, 28 + size, 1, 0, 64, 17, check) + addresses
packet = header(ones(header(0))) + struct.pack('!HHHH', there[1], here[1], 8 + size, 0) + b'x' * size
print('ready', flush=True)
sys.stdin.readline()
for _ in range(packets):
    os.write(device, packet)
    assert len(reader.recv(2 * size, socket.MSG_PEEK)) == size
    assert len(reader.recv(2 * size)) == size
    reader.send(b'y' * (size // 2))
print('done', flush=True)
sys.stdin.readline()
";

/// Starts the program. It has the device once it is ready.
fn program() -> Result<(Child, BufReader<ChildStdout>)> {
    let mut child = Command::new("unshare")
        .args(["--net", "python3", "-c", PROGRAM, &PACKETS.to_string(), &BYTES.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("unshare")?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?);
    wait_for(&mut lines, "ready").inspect_err(|_| drop(child.kill()))?;
    Ok((child, lines))
}

fn wait_for(lines: &mut impl BufRead, word: &str) -> Result<()> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    ensure!(line.trim() == word, "the program wrote '{}', not '{word}'", line.trim());
    Ok(())
}

/// Ends the program when it is dropped.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why no such device can be made here.
pub fn obstacle() -> Option<String> {
    let started = program().map(|(child, _)| drop(Ends(child)));
    started
        .err()
        .map(|error| format!("no device can be made with /dev/net/tun, unshare, ip and python3: {error:#}"))
}

pub fn bytes_and_reads_are_exact() -> Result<()> {
    let (child, mut lines) = program()?;
    let mut child = Ends(child);
    let pid = child.0.id();
    let sums = counted(pid, || {
        let input = child.0.stdin.as_mut().context("no input")?;
        writeln!(input)?;
        wait_for(&mut lines, "done")
    })?;
    println!("{sums:?}");
    let received = PACKETS * BYTES as u64;
    let expected = SocketUse { received, reads: PACKETS, sent: received / 2 };
    ensure!(sums.all == expected, "{sums:?}, not {expected:?}");
    // The socket is connected, so the kernel keeps the CPU of its packets.
    ensure!(sums.known == received && sums.far <= sums.known, "{sums:?}");
    Ok(())
}
