//! Programs with a known behaviour: this test binary, started again with a variable that names one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{access, first_touches, hostile, launched, locking};

/// Set in the environment of a workload.
pub const VARIABLE: &str = "NUMATOP_NG_TEST_WORKLOAD";

/// A copy of a program in a place that every user can reach: a checkout may be in a private home. Removed
/// when dropped.
pub struct ForEverybody {
    dir: PathBuf,
    pub program: PathBuf,
}

impl ForEverybody {
    pub fn copy(program: &Path) -> Result<ForEverybody> {
        let name = program.file_name().context("a program has a name")?;
        let id = format!("numatop-ng-test-{}-{}", std::process::id(), name.to_string_lossy());
        let dir = std::env::temp_dir().join(id);
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        let copy = ForEverybody { program: dir.join(name), dir };
        fs::copy(program, &copy.program).with_context(|| format!("copying {}", program.display()))?;
        for path in [&copy.dir, &copy.program] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(copy)
    }
}

impl Drop for ForEverybody {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A running workload. Killed when dropped.
pub struct Workload {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
}

impl Workload {
    /// Starts `name` and waits until it reports that it is ready.
    pub fn start(name: &str) -> Result<Workload> {
        Workload::start_with(name, |_| {})
    }

    /// As [`Workload::start`], after `prepare` has changed the command.
    pub fn start_with(name: &str, prepare: impl FnOnce(&mut Command)) -> Result<Workload> {
        Workload::start_program(&std::env::current_exe()?, name, prepare)
    }

    /// As [`Workload::start_with`], with a copy of this test binary.
    pub fn start_program(program: &Path, name: &str, prepare: impl FnOnce(&mut Command)) -> Result<Workload> {
        let mut command = Command::new(program);
        command.env(VARIABLE, name).stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().with_context(|| format!("starting workload {name}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the workload has no output")?;
        let mut workload = Workload { child, stdin, lines: BufReader::new(stdout) };
        workload.line()?;
        Ok(workload)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the workload prints.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "the workload ended early");
        Ok(line.trim().to_string())
    }

    /// Waits until a line can be read, or the workload ended; false if neither happened in this time.
    pub fn says_something_within(&self, time: Duration) -> Result<bool> {
        let mut poll =
            libc::pollfd { fd: self.lines.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, of a descriptor that lives as long as we do.
        match unsafe { libc::poll(&mut poll, 1, time.as_millis() as libc::c_int) } {
            -1 => Err(std::io::Error::last_os_error()).context("waiting for the workload"),
            ready => Ok(ready > 0),
        }
    }

    /// Lets the workload continue.
    pub fn go(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the workload was told to end already")?;
        stdin.write_all(b"go\n").context("telling the workload to go on")
    }

    /// Stops the workload and waits until it has stopped: its counts stay constant.
    pub fn pause(&self) -> Result<()> {
        self.signal(libc::SIGSTOP)?;
        let mut status = 0;
        // SAFETY: the child is ours and not yet waited for; the status is a local that outlives the call.
        let pid = unsafe { libc::waitpid(self.pid() as libc::pid_t, &mut status, libc::WUNTRACED) };
        anyhow::ensure!(
            pid == self.pid() as libc::pid_t && libc::WIFSTOPPED(status),
            "the workload does not stop"
        );
        // It reports this a moment before it leaves its CPU.
        thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    /// Lets a workload that was paused run again.
    pub fn resume(&self) -> Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: libc::c_int) -> Result<()> {
        // SAFETY: the child is ours and not yet waited for.
        let sent = unsafe { libc::kill(self.pid() as libc::pid_t, signal) };
        anyhow::ensure!(sent == 0, "kill: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Lets the workload end by itself and waits for that.
    pub fn finish(&mut self) -> Result<()> {
        self.stdin = None;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ready() {
    println!("ready");
}

/// Waits for a word from the test; false when the test closed the pipe.
fn word() -> bool {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok_and(|read| read > 0)
}

/// Uses `time` of CPU, however long others make us wait for it.
fn burn(time: Duration) {
    let until = thread_cpu_time() + time;
    while thread_cpu_time() < until {
        std::hint::spin_loop();
    }
}

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a valid timespec, and every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPUs that this process may run on, in order.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: the kernel fills the zeroed set it is given; all numbers are within its bits.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Stays on the first allowed CPU.
fn pin_to_first() {
    pin(allowed_cpus()[0]);
}

fn bind_to_first_node() {
    const MPOL_BIND: libc::c_int = 2;
    const MPOL_F_STATIC_NODES: libc::c_int = 1 << 15;
    let nodes = 1u64;
    // SAFETY: the mask is a local with the given number of bits.
    let error = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND | MPOL_F_STATIC_NODES, &nodes, u64::BITS as u64)
    };
    assert_eq!(error, 0, "set_mempolicy: {}", std::io::Error::last_os_error());
}

fn pin(cpu: usize) {
    // SAFETY: a zeroed cpu_set_t is the empty set, and `cpu` is within its 1024 bits.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Takes the name that the test asks for, if it does.
fn rename() {
    if let Some(comm) = std::env::var_os("NUMATOP_NG_TEST_COMM") {
        // Writing comm takes any bytes, as prctl(PR_SET_NAME) does.
        std::fs::write("/proc/self/comm", comm.as_encoded_bytes()).expect("a process may rename itself");
    }
}

/// Runs as the workload called `name`.
pub fn run(name: &str) {
    // One below a program that is killed would go on for ever.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    rename();
    if access::run(name) {
        return;
    }
    match name {
        "children" => launched::make_children(),
        "hog" => {
            ready();
            loop {
                burn(Duration::from_secs(1));
            }
        }
        // Four threads: one sleeps, three wake up now and then.
        "crowd" => {
            for _ in 0..3 {
                thread::spawn(|| {
                    loop {
                        burn(Duration::from_millis(1));
                        thread::sleep(Duration::from_millis(50));
                    }
                });
            }
            ready();
            word();
        }
        "sleeper" => {
            ready();
            loop {
                thread::sleep(Duration::from_millis(20));
            }
        }
        // Sixteen threads that rest for good.
        "sleepers" => {
            for _ in 1..16 {
                thread::spawn(|| {
                    loop {
                        thread::park();
                    }
                });
            }
            ready();
            word();
        }
        // Runs a millisecond, rests a millisecond, always on the same CPU: two of them take turns.
        "alternator" => {
            pin_to_first();
            ready();
            loop {
                burn(Duration::from_millis(1));
                thread::sleep(Duration::from_millis(1));
            }
        }
        // In turns with an alternator; it only faults.
        "alternating-faulter" => {
            pin_to_first();
            ready();
            loop {
                touch_pages(512);
                thread::sleep(Duration::from_millis(1));
            }
        }
        // A hog that stays on one CPU, and one whose memory stays on the first node too.
        name @ ("pinned" | "bound") => {
            if name == "bound" {
                bind_to_first_node();
            }
            let cpu = std::env::var("NUMATOP_NG_TEST_CPU").expect("the test names a CPU");
            pin(cpu.parse().expect("a CPU is a number"));
            ready();
            loop {
                burn(Duration::from_secs(1));
            }
        }
        "storm" => storm(),
        "threads" => threads(),
        "exec-by-thread" => exec_by_thread(),
        "headless" => headless(),
        "faults" => faults(),
        "switches" => switches(),
        // One that ends on request, after some work.
        "brief" => {
            ready();
            word();
            burn(Duration::from_millis(200));
        }
        "shares" => shares(),
        "jit" => jit(false),
        "jit-in-memfd" => jit(true),
        // As "faults", without a rest.
        "faulter" => {
            ready();
            loop {
                touch_pages(4096);
            }
        }
        locking::NAME => locking::run().unwrap(),
        first_touches::NAME => first_touches::run(),
        other if hostile::run(other) => {}
        other => panic!("no workload '{other}'"),
    }
}

/// Forks children that exec and exit, as fast as it can for four seconds and at least four hundred times.
/// Then prints their number and the CPU time, in ns, of itself since the request and of all of them.
fn storm() {
    ready();
    word();
    let before = cpu_ns(libc::RUSAGE_SELF);
    let stop = Instant::now() + Duration::from_secs(4);
    let mut forks = 0;
    while Instant::now() < stop || forks < 400 {
        // SAFETY: the child calls nothing but exec and _exit.
        unsafe {
            match libc::fork() {
                0 => {
                    let argv = [c"/bin/true".as_ptr(), std::ptr::null()];
                    libc::execv(argv[0], argv.as_ptr());
                    libc::_exit(127);
                }
                -1 => panic!("fork: {}", std::io::Error::last_os_error()),
                pid => {
                    libc::waitpid(pid, std::ptr::null_mut(), 0);
                }
            }
        }
        forks += 1;
    }
    println!("{forks} {}", cpu_ns(libc::RUSAGE_SELF) - before + cpu_ns(libc::RUSAGE_CHILDREN));
    word();
}

/// User and system time, which the kernel makes add up to the scheduler's time on CPU.
fn cpu_ns(who: libc::c_int) -> u64 {
    let usage = usage(who);
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Three threads burn 100 ms each and end; the process lives on until a request.
fn threads() {
    ready();
    word();
    let burning: Vec<_> = (0..3).map(|_| thread::spawn(|| burn(Duration::from_millis(100)))).collect();
    for thread in burning {
        let _ = thread.join();
    }
    println!("joined");
    word();
}

/// A thread that is not the leader replaces the program: it becomes the leader.
fn exec_by_thread() {
    ready();
    word();
    burn(Duration::from_millis(100));
    let thread = thread::spawn(|| {
        burn(Duration::from_millis(50));
        let argv = [c"/bin/sleep".as_ptr(), c"30".as_ptr(), std::ptr::null()];
        // SAFETY: argv is a NULL-terminated array of NUL-terminated strings.
        unsafe { libc::execv(argv[0], argv.as_ptr()) };
    });
    let _ = thread.join();
}

/// A worker that computes; the first thread ends alone on request.
fn headless() {
    let worker = thread::Builder::new().name("worker".to_owned()).spawn(|| {
        loop {
            burn(Duration::from_secs(1));
        }
    });
    worker.expect("a thread can be started");
    ready();
    word();
    // SAFETY: the other thread uses nothing of this one, and none of its destructors matters.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Touches 4,096 fresh pages at each request, and prints its minor faults before and after.
fn faults() {
    ready();
    while word() {
        let before = usage(libc::RUSAGE_SELF);
        touch_pages(4096);
        println!("{}", usage(libc::RUSAGE_SELF).ru_minflt - before.ru_minflt);
    }
}

/// Touches `pages` fresh pages.
fn touch_pages(pages: usize) {
    let len = pages * 4096;
    // SAFETY: a private anonymous mapping of our own, touched within its length and unmapped again.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0);
        assert!(at != libc::MAP_FAILED);
        libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            at.cast::<u8>().add(page * 4096).write_volatile(1);
        }
        libc::munmap(at, len);
    }
}

/// Three functions that take 60, 30 and 10 % of its time on CPU, one after the other, fifty times a second.
fn shares() {
    const ROUND: Duration = Duration::from_millis(20);
    ready();
    loop {
        sixty(ROUND * 6 / 10);
        thirty(ROUND * 3 / 10);
        ten(ROUND / 10);
    }
}

// Each has a separate loop and reads the clock once in many steps: otherwise the called functions would take
// the time. With 20,000 steps, 5 us on a CPU of 4 GHz, a tenth of the time was theirs. The loops differ in
// their start values, so that no compiler merges them.
macro_rules! burner {
    ($name:ident, $seed:literal) => {
        #[inline(never)]
        fn $name(time: Duration) {
            let until = thread_cpu_time() + time;
            let mut sum: u64 = $seed;
            while thread_cpu_time() < until {
                let mut steps = 100_000_u64;
                while steps > 0 {
                    sum = (sum << 1) ^ steps;
                    steps -= 1;
                }
            }
            std::hint::black_box(sum);
        }
    };
}
burner!(sixty, 60);
burner!(thirty, 30);
burner!(ten, 10);

/// Runs machine code in memory that is not a file, after it printed its address and length in hex.
fn jit(in_memfd: bool) {
    let code = hostile::endless();
    ready();
    // SAFETY: a private mapping that holds one instruction, which is the function called.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let (kind, file) = if in_memfd {
            // As in .NET, whose memory file has this name.
            let file = libc::memfd_create(c"doublemapper".as_ptr(), 0);
            assert!(file >= 0 && libc::ftruncate(file, 4096) == 0);
            (libc::MAP_SHARED, file)
        } else {
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
        };
        let at = libc::mmap(std::ptr::null_mut(), 4096, rights, kind, file, 0);
        assert!(at != libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len());
        println!("{:x} {:x}", at as usize, code.len());
        let run: extern "C" fn() = std::mem::transmute(at);
        run();
    }
}

/// Sleeps 500 times, then prints its voluntary and involuntary switches since the request.
fn switches() {
    ready();
    while word() {
        let before = usage(libc::RUSAGE_SELF);
        for _ in 0..500 {
            thread::sleep(Duration::from_millis(1));
        }
        let after = usage(libc::RUSAGE_SELF);
        println!("{}", after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw);
    }
}

fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: getrusage fills the zeroed struct it is given.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    }
}
