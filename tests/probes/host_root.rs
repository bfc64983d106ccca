//! A container that sees the files of its host below a folder: names, users and cgroups are those of the host.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use numatop_ng::host::cgroups;

use crate::command::last_interval;
use crate::containers::{Cgroup, unique};
use crate::program;
use crate::workload::{ForEverybody, Workload};

/// A user that no machine of ours has.
const USER: u32 = 412_345;

/// Tasks of this kernel are on the nodes of a written tree, whose last CPU is on node 1 and all others on node 0.
pub fn the_topology_is_that_of_the_files_below_the_host_root() -> Result<()> {
    let host = Host::make()?;
    let root = host.0.as_path();
    let write = |path: &str, text: &str| -> Result<()> {
        let path = root.join(path);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        Ok(fs::write(path, text)?)
    };
    let of_kernel = |path: &str| fs::read_to_string(Path::new("/").join(path)).context(path.to_owned());
    let topology = numatop_ng::host::topology::read(Path::new("/"))?;
    let cpus: Vec<u32> = topology.online_cpus().map(|cpu| cpu.id.0).collect();
    let (last, others) = cpus.split_last().context("CPUs")?;
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    for file in ["possible", "present", "online"].map(|file| format!("sys/devices/system/cpu/{file}")) {
        write(&file, &of_kernel(&file)?)?;
    }
    for cpu in &cpus {
        for file in ["core_id", "physical_package_id", "thread_siblings_list"] {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/{file}");
            write(&file, &of_kernel(&file)?)?;
        }
    }
    for file in ["stat", "vmstat", "zoneinfo", "meminfo"].map(|file| format!("proc/{file}")) {
        write(&file, &of_kernel(&file)?)?;
    }
    for (node, list, distance) in [(0, others.join(","), "10 21"), (1, last.to_string(), "21 10")] {
        let folder = format!("sys/devices/system/node/node{node}");
        write(&format!("{folder}/cpulist"), &list)?;
        write(&format!("{folder}/distance"), distance)?;
        write(
            &format!("{folder}/meminfo"),
            &format!("Node {node} MemTotal: 4194304 kB\nNode {node} MemFree: 1048576 kB\n"),
        )?;
    }
    write("sys/devices/system/node/online", "0-1")?;
    write("sys/devices/system/node/possible", "0-1")?;

    let hog = Workload::start_with("pinned", |command| {
        command.env("NUMATOP_NG_TEST_CPU", last.to_string());
    })?;
    let root = root.to_str().context("a temporary directory in UTF-8")?;
    let seen = host.inside(&["--host-root", root, "--pid", &hog.pid().to_string()])?;
    let nodes = rows(&seen, "nodes")?;
    ensure!(nodes.len() == 2 && nodes[1]["mem_total_bytes"] == 4_294_967_296_u64, "{nodes:?}");
    let task = rows(&seen, "tasks")?.first().context("no row of the load")?;
    ensure!(task["home_node"] == 1, "{task}");
    ensure!(!seen["notes"].to_string().contains("no /sys and /proc"), "{}", seen["notes"]);
    Ok(())
}

/// In a pid namespace with a separate /proc, files of processes come from a live /proc of the machine, by its
/// ids, and not from a copy.
pub fn files_of_processes_come_from_the_proc_of_the_host() -> Result<()> {
    let host = Host::make()?;
    let proc = host.0.join("proc");
    fs::create_dir(&proc)?;
    let root = host.0.to_str().context("a temporary directory in UTF-8")?;
    // A process of the namespace whose id there differs from the machine's, which is in the machine's row.
    let script = r#"test "$2" = live && { mount --bind /proc "$1/proc" || exit 9; }
        exec unshare --pid --fork --kill-child --mount-proc sh -c '
            shift 2
            (while :; do :; done) & spinner=$!
            "$@"; code=$?; kill $spinner; exit $code' sh "$@""#;
    let seen = |kind: &str| -> Result<(u64, Value)> {
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", root, kind])
            .args([program::path(), "-b", "-n", "3", "-d", "0.3", "--json-full", "--host-root", root])
            .args(["--columns", "pid,comm,cpu_pct,cmdline"])
            .stdin(Stdio::null())
            .output()
            .context("starting unshare")?;
        let interval = last_interval(&output)?;
        let tasks = rows(&interval, "tasks")?.iter();
        let most = tasks
            .filter(|task| task["comm"] == "sh")
            .max_by_key(|task| (task["cpu_pct"].as_f64().unwrap_or(0.0) * 100.0) as u64);
        let task = most.context("no row of the spinner")?.clone();
        Ok((task["pid"].as_u64().context("a pid")?, task))
    };
    let (pid, task) = seen("live")?;
    ensure!(task["cmdline"].as_str().is_some_and(|line| line.starts_with("sh -c")), "{task}");
    ensure!(pid > 10, "an id of the machine, not of a new namespace: {task}");
    // Our own /proc knows the process by another id.
    let (_, task) = seen("none")?;
    ensure!(task["cmdline"].is_null(), "{task}");
    Ok(())
}

/// A folder with some files of a host, removed when dropped. In the container of [`Host::inside`] it includes
/// its cgroups.
struct Host(PathBuf);

impl Host {
    fn make() -> Result<Host> {
        let root = std::env::temp_dir().join(unique("host"));
        for folder in ["etc", "sys/fs/cgroup", "var/lib"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::write(root.join("etc/passwd"), format!("user-of-host:x:{USER}:7::/:\n"))?;
        fs::write(root.join("etc/hostname"), "name-of-host\n")?;
        Ok(Host(root))
    }

    /// Docker's file about a container, on a separate disk that a link of the host leads to.
    fn docker(&self, id: &str, name: &str) -> Result<()> {
        let folder = self.0.join("data/docker/containers").join(id);
        fs::create_dir_all(&folder)?;
        symlink("/data/docker", self.0.join("var/lib/docker"))?;
        Ok(fs::write(folder.join("config.v2.json"), format!("{{\"Name\":\"/{name}\"}}"))?)
    }

    /// One interval with these words, where nothing but this folder has cgroups.
    fn inside(&self, words: &[&str]) -> Result<Value> {
        let script = "mount --rbind /sys/fs/cgroup \"$1/sys/fs/cgroup\" && mount -t tmpfs none /sys/fs/cgroup && \
                      shift && exec \"$@\"";
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(&self.0)
            .args([program::path(), "-b", "-n", "1", "-d", "0.3", "--json-full"])
            .args(words)
            .env_remove("NUMATOP_HOST_NAME")
            .stdin(Stdio::null())
            .output()
            .context("starting unshare")?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).context("the output is no JSON")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rows<'a>(interval: &'a Value, list: &str) -> Result<&'a [Value]> {
    Ok(interval[list].as_array().with_context(|| format!("no {list}"))?)
}

pub fn names_users_and_cgroups_are_those_of_the_host_below_its_root() -> Result<()> {
    let mount = cgroups::choose(Path::new("/")).mount.context("no cgroup filesystem is mounted")?;
    let host = Host::make()?;
    // Docker's names of cgroups are 64 digits.
    let id = format!("{:064x}", u64::from(std::process::id()) << 32 | 0xd0c);
    host.docker(&id, "shop-of-host")?;
    let parent = Cgroup::make(&mount, unique("docker"))?;
    let group = Cgroup::make(&parent.0, format!("docker-{id}.scope"))?;
    let program = ForEverybody::copy(&std::env::current_exe()?)?;
    let hog = Workload::start_program(&program.program, "hog", |command| {
        command.uid(USER).gid(USER);
    })?;
    group.adopt(hog.pid())?;
    let root = host.0.to_str().context("a temporary directory in UTF-8")?;
    let pid = u64::from(hog.pid());
    let of_hog = |interval: &Value| -> Result<Value> {
        let tasks = rows(interval, "tasks")?.iter();
        tasks.clone().find(|task| task["pid"] == pid).cloned().with_context(|| format!("no row for {pid}"))
    };

    let seen = host.inside(&["--host-root", root])?;
    let task = of_hog(&seen)?;
    let container = rows(&seen, "containers")?.iter().find(|row| row["container"] == "shop-of-host");
    let container = container.context("no row of the container by its name")?;
    ensure!(task["user"] == "user-of-host", "{}", task["user"]);
    ensure!(task["container"] == "shop-of-host", "{}", task["container"]);
    ensure!(container["processes"] == 1 && container["mem_bytes"].is_u64(), "{container}");
    ensure!(seen["host"]["hostname"] == "name-of-host", "{}", seen["host"]["hostname"]);
    ensure!(!seen["notes"].to_string().contains("no cgroup file system below"), "{}", seen["notes"]);

    // A scope by name, by user, and by the path that the cgroup has on the host.
    let path = group.0.to_str().context("a path in UTF-8")?;
    for words in [["--container", "shop-of-host"], ["--user", "user-of-host"], ["--cgroup", path]] {
        let seen = host.inside(&["--host-root", root, words[0], words[1]])?;
        let tasks = rows(&seen, "tasks")?;
        ensure!(tasks.len() == 1 && tasks[0]["pid"] == pid, "{words:?}: {} rows", tasks.len());
    }

    // Without the flag none of that is known, so the above is meaningful.
    let blind = host.inside(&[])?;
    let task = of_hog(&blind)?;
    ensure!(task["user"] != "user-of-host" && task["container"] != "shop-of-host", "{task}");
    ensure!(blind["host"]["hostname"] != "name-of-host");

    // A folder without mounted cgroups is reported as such.
    let notes = host.inside(&["--host-root", "/var"])?["notes"].to_string();
    ensure!(notes.contains("no cgroup file system below /var"), "{notes}");
    drop(hog);
    Ok(())
}

/// A `/proc` that shows users their own processes only: another's is counted all the same.
pub fn a_process_that_proc_hides_is_counted() -> Result<()> {
    let tool = ForEverybody::copy(Path::new(program::path()))?;
    let other = Workload::start("hog")?;
    let words = format!(
        "mount -t proc -o hidepid=2 none /proc && exec setpriv --reuid {USER} --clear-groups --inh-caps +bpf,+perfmon \
         --ambient-caps +bpf,+perfmon {} -b -n 1 -d 0.5 --format csv --columns pid,cpu_pct -p {}",
        tool.program.display(),
        other.pid()
    );
    let run = Command::new("unshare").args(["--mount", "sh", "-c", &words]).output().context("unshare")?;
    let (rows, said) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let row = rows.lines().find(|row| row.contains(&format!(",{},", other.pid())));
    ensure!(row.is_some(), "{rows}{said}");
    Ok(())
}
