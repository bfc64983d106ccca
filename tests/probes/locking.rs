//! A program of an ordinary user that keeps the address space of one of its processes locked for as long as it likes.
//!
//! Mapping a file whose filesystem asks to bypass the cache (FOPEN_DIRECT_IO) writes back its dirty pages,
//! under the lock of the address space (fuse_file_mmap and fuse_launder_folio of fs/fuse/file.c). The test's
//! filesystem does not answer. Readers of /proc/PID/cmdline, /proc/PID/smaps_rollup and callers of
//! move_pages(2) wait behind that lock.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::hostile::DIR;
use crate::workload::{ForEverybody, Workload};

/// The name of the program.
pub const NAME: &str = "hostile-locking";
/// The number of processes that it locks.
const COUNT: &str = "NUMATOP_NG_TEST_LOCKED";
/// The user "nobody".
pub const NOBODY: u32 = 65_534;
const PAGE: usize = 4096;

/// Opcodes and flags of include/uapi/linux/fuse.h.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const FOPEN_DIRECT_IO: u32 = 1;
/// `struct fuse_in_header`.
const IN_HEADER: usize = 40;
const ROOT_INODE: u64 = 1;

/// Why no filesystem can be served here.
pub fn obstacle() -> Option<String> {
    let kinds = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kinds.lines().any(|line| line.trim_start_matches("nodev").trim() == "fuse") {
        return Some("the kernel has no FUSE".into());
    }
    match fs::read_to_string("/proc/sys/user/max_user_namespaces") {
        Ok(most) if most.trim() != "0" => None,
        _ => Some("the kernel has no user namespaces, or allows none".into()),
    }
}

/// Processes of an ordinary user whose address spaces are locked, until this is released or dropped.
pub struct Locked {
    workload: Workload,
    dir: PathBuf,
    _program: ForEverybody,
    pub pids: Vec<u32>,
}

impl Locked {
    /// Starts as many, and waits until each is locked.
    pub fn start(count: usize) -> Result<Locked> {
        let dir = std::env::temp_dir().join(format!("numatop-ng-{NAME}-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let program = ForEverybody::copy(&std::env::current_exe()?)?;
        let prepare = |command: &mut Command| {
            command.env(DIR, &dir).env(COUNT, count.to_string()).current_dir("/");
        };
        let workload = Workload::start_program(&program.program, NAME, prepare);
        let mut locked = Locked { workload: workload?, dir, _program: program, pids: Vec::new() };
        for _ in 0..count {
            locked.pids.push(locked.workload.line()?.parse().context("the id of a process")?);
        }
        Ok(locked)
    }

    /// Gives up the locks. The processes go on.
    pub fn release(&mut self) -> Result<()> {
        self.workload.go()?;
        self.workload.line().map(drop)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.workload.finish();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Runs as the program.
pub fn run() -> Result<()> {
    let dir = PathBuf::from(std::env::var_os(DIR).context("the test names a directory")?);
    let count = std::env::var(COUNT).context("the test says how many")?.parse()?;
    become_ordinary(&dir)?;
    let mut lockers = Vec::new();
    let mut servers = Vec::new();
    for at in 0..count {
        let mountpoint = dir.join(at.to_string());
        fs::create_dir(&mountpoint).context("making a mount point")?;
        let device = mount(&dir.join("fuse"), &mountpoint)?;
        let (mut held, mut say) = io::pipe()?;
        servers.push(fork(|| serve(&device, &mut say))?);
        drop((device, say));
        lockers.push(fork(|| lock(&mountpoint.join("file")))?);
        held.read_exact(&mut [0]).context("waiting for the lock")?;
    }
    println!("ready");
    lockers.iter().for_each(|pid| println!("{pid}"));
    let mut line = String::new();
    let told = io::stdin().read_line(&mut line).is_ok_and(|read| read > 0);
    // Without its server the filesystem fails, and nothing waits for it.
    servers.into_iter().for_each(end);
    if told {
        println!("released");
        let _ = io::stdin().read_line(&mut line);
    }
    lockers.into_iter().for_each(end);
    Ok(())
}

/// From root to an ordinary user who may open /dev/fuse, as he may on most machines, and mounts in his own namespace.
fn become_ordinary(dir: &Path) -> Result<()> {
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (root, dir) = (path(Path::new("/"))?, (path(dir)?, path(&dir.join("fuse"))?));
    let none = std::ptr::null();
    // SAFETY: plain calls with strings that end with NUL and outlive them.
    unsafe {
        done("leaving the mounts", libc::unshare(libc::CLONE_NEWNS))?;
        done(
            "keeping mounts",
            libc::mount(none, root.as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()),
        )?;
        done(
            "mounting a tmpfs",
            libc::mount(c"none".as_ptr(), dir.0.as_ptr(), c"tmpfs".as_ptr(), 0, c"mode=0777".as_ptr().cast()),
        )?;
        done("making a device", libc::mknod(dir.1.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(10, 229)))?;
        done("making it for everybody", libc::chmod(dir.1.as_ptr(), 0o666))?;
        done("leaving groups", libc::setgroups(0, std::ptr::null()))?;
        done("leaving the group", libc::setgid(NOBODY))?;
        done("leaving root", libc::setuid(NOBODY))?;
        // A process that was root may not write its own files in /proc.
        done("being oneself", libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0))?;
        done("making a user namespace", libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS))?;
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {NOBODY} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {NOBODY} 1"))?;
    Ok(())
}

fn done(what: &str, result: libc::c_int) -> Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error()).context(what.to_string());
    }
    Ok(())
}

fn fork(work: impl FnOnce() -> Result<()>) -> Result<libc::pid_t> {
    // SAFETY: the program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("fork"),
        0 => {
            // SAFETY: as above; the end of the parent is ours.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if let Err(error) = work() {
                eprintln!("{NAME}: {error:#}");
            }
            std::process::exit(0);
        }
        pid => Ok(pid),
    }
}

fn end(pid: libc::pid_t) {
    // SAFETY: our own child, which was not waited for.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

fn mount(device: &Path, mountpoint: &Path) -> Result<File> {
    let device = OpenOptions::new().read(true).write(true).open(device).context("opening /dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let (options, target) = (CString::new(options)?, CString::new(mountpoint.as_os_str().as_bytes())?);
    let kind = c"fuse".as_ptr();
    // SAFETY: strings that end with NUL and outlive the call.
    let mounted = unsafe {
        libc::mount(kind, target.as_ptr(), kind, libc::MS_NOSUID | libc::MS_NODEV, options.as_ptr().cast())
    };
    done("mounting a filesystem", mounted)?;
    Ok(device)
}

/// Makes a page of the file dirty, then maps the file as one that bypasses the cache.
fn lock(path: &Path) -> Result<()> {
    // Opened later, it would write the page back at once, without the lock.
    let direct = File::open(path).context("opening the file")?;
    let cached = OpenOptions::new().read(true).write(true).open(path).context("opening the file again")?;
    let map = |file: &File, rights, kind| {
        // SAFETY: a new mapping of one page, which nothing else uses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, kind, file.as_raw_fd(), 0) };
        ensure!(at != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        Ok(at)
    };
    let page = map(&cached, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)?;
    // SAFETY: the page is ours and may be written.
    unsafe { page.cast::<u8>().write_volatile(1) };
    // Fails when the server is gone: it held for long enough.
    let _ = map(&direct, libc::PROT_READ, libc::MAP_PRIVATE);
    loop {
        std::thread::park();
    }
}

/// Answers everything except the write, and reports when that comes.
fn serve(mut device: &File, say: &mut impl Write) -> Result<()> {
    let mut bytes = vec![0; 1 << 20];
    loop {
        let length = device.read(&mut bytes).context("reading a request")?;
        let request = &bytes[..length];
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let (opcode, unique) = (word(4), &request[8..16]);
        let inode = u64::from_ne_bytes(request[16..24].try_into().expect("eight bytes"));
        let body: Result<Vec<u8>, i32> = match opcode {
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            WRITE => {
                say.write_all(&[0])?;
                continue;
            }
            // Version 7.31; 128 KiB in one request.
            INIT => Ok(words(&[7, 31, 0, 0, 0, 128 << 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            LOOKUP => Ok([words(&[2, 0, 1, 0, 3600, 0, 3600, 0, 0, 0]), attributes(2)].concat()),
            GETATTR => Ok([words(&[3600, 0, 0, 0]), attributes(inode)].concat()),
            OPEN => {
                let bypass = word(IN_HEADER) as libc::c_int & libc::O_ACCMODE == libc::O_RDONLY;
                Ok(words(&[0, 0, if bypass { FOPEN_DIRECT_IO } else { 0 }, 0]))
            }
            READ => Ok(vec![0; word(IN_HEADER + 16) as usize]),
            FLUSH | RELEASE => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let error = body.as_ref().err().map_or(0, |errno| -errno);
        let body = body.unwrap_or_default();
        let mut answer = words(&[16 + body.len() as u32, error as u32]);
        answer.extend_from_slice(unique);
        answer.extend(body);
        device.write_all(&answer).context("answering")?;
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_attr`: of the root, a directory, or of the one file.
fn attributes(inode: u64) -> Vec<u8> {
    let mode = if inode == ROOT_INODE { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o666 };
    let mut all = vec![0; 22];
    (all[0], all[2], all[15], all[16], all[20]) = (inode as u32, PAGE as u32, mode, 1, PAGE as u32);
    words(&all)
}
