//! Asks Debian for packages of any suite and architecture, without touching where this machine's apt looks.
//!
//! Each (suite, architecture) has a separate apt root in the cache. apt checks the signatures with the
//! keyring of the package debian-archive-keyring. It uses the mirror of this machine, or the one in
//! `NUMATOP_DEBIAN_MIRROR`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::cache;
use crate::kernels::{self, Arch};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Environment variable with the address of a Debian mirror, for machines whose apt has none.
const MIRROR: &str = "NUMATOP_DEBIAN_MIRROR";

/// An apt configuration, its package lists and nothing else.
pub struct AptRoot {
    directory: PathBuf,
    suite: String,
    /// Its package lists were fetched by this process.
    updated: bool,
}

impl AptRoot {
    /// Gets something of a suite. After a point release, packages of old lists may have left the mirror, and
    /// the lists lack new ones. So anything that fails is tried again with new lists.
    pub fn with<T>(
        suite: &str,
        arch: Arch,
        refresh: bool,
        get: impl Fn(&AptRoot) -> Result<T, String>,
    ) -> Result<T, String> {
        let root = AptRoot::open(suite, arch, refresh)?;
        match get(&root) {
            Err(_) if !root.updated => get(&AptRoot::open(suite, arch, true)?),
            done => done,
        }
    }

    fn open(suite: &str, arch: Arch, refresh: bool) -> Result<Self, String> {
        let directory = cache()?.join("apt").join(format!("{suite}.{arch}"));
        for part in [
            "etc/apt/preferences.d",
            "etc/apt/apt.conf.d",
            "etc/apt/sources.list.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg",
            "debs",
        ] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(|error| format!("creating {}: {error}", path.display()))?;
        }
        let root = directory.display();
        let configuration = format!(
            "Dir \"{root}\";\n\
             Dir::State::status \"{root}/var/lib/dpkg/status\";\n\
             Dir::Etc::trustedparts \"/etc/apt/trusted.gpg.d\";\n\
             APT::Architecture \"{arch}\";\n\
             APT::Architectures {{ \"{arch}\"; }};\n\
             APT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::Retries \"3\";\n\
             // Suites in development and frozen mirrors have Release files past their date;\n\
             // their signatures are checked all the same.\n\
             Acquire::Check-Valid-Until \"false\";\n\
             {}",
            transport()?
        );
        let sources = format!("deb [arch={arch} signed-by={KEYRING}] {} {suite} main\n", mirror()?);
        for (name, text) in [
            ("apt.conf", configuration.as_str()),
            ("etc/apt/sources.list", &sources),
            ("var/lib/dpkg/status", ""),
        ] {
            let path = directory.join(name);
            fs::write(&path, text).map_err(|error| format!("writing {}: {error}", path.display()))?;
        }
        let stamp = directory.join("updated");
        let updated = refresh || !stamp.exists();
        let root = AptRoot { directory, suite: suite.to_owned(), updated };
        if updated {
            // --error-on=any: apt-get update returns 0 when a suite could not be fetched.
            run(root.apt("apt-get").args(["update", "-qq", "--error-on=any"]))
                .map_err(|error| format!("suite {suite} cannot be read: {error}"))?;
            let _ = fs::write(stamp, "");
        }
        Ok(root)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.directory.join("apt.conf")).env("LC_ALL", "C");
        command.current_dir(self.directory.join("debs"));
        command
    }

    pub fn newest(&self, pattern: &str) -> Result<String, String> {
        let stem = pattern.split('*').next().unwrap_or(pattern);
        let names = run(self.apt("apt-cache").args(["pkgnames", stem]))?;
        let names = String::from_utf8_lossy(&names);
        kernels::newest(pattern, names.lines())
            .map(str::to_owned)
            .ok_or_else(|| format!("suite {} has no package {pattern}", self.suite))
    }

    /// The Debian version of `package` whose upstream version is `upstream`.
    pub fn version(&self, package: &str, upstream: &str) -> Result<String, String> {
        let table = run(self.apt("apt-cache").args(["madison", package]))?;
        let table = String::from_utf8_lossy(&table);
        let versions: Vec<&str> =
            table.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
        versions
            .iter()
            .find(|version| is_release(version, upstream))
            .map(|version| (*version).to_owned())
            .ok_or_else(|| {
                let there = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
                format!("suite {} has no {package} {upstream} (it has {there})", self.suite)
            })
    }

    pub fn download(&self, package: &str) -> Result<PathBuf, String> {
        let debs = self.directory.join("debs");
        let _ = fs::remove_dir_all(&debs);
        fs::create_dir_all(&debs).map_err(|error| format!("creating {}: {error}", debs.display()))?;
        run(self.apt("apt-get").args(["download", "-qq", package]))?;
        fs::read_dir(&debs)
            .ok()
            .and_then(|entries| entries.flatten().map(|entry| entry.path()).find(|path| is_deb(path)))
            .ok_or_else(|| format!("apt-get download {package} left no file"))
    }
}

/// The way this machine's apt reaches its mirrors, as lines of a configuration: proxies, certificates, passwords.
fn transport() -> Result<String, String> {
    let mut lines = String::new();
    for tree in ["Acquire::http", "Acquire::https"] {
        lines += &String::from_utf8_lossy(&run(Command::new("apt-config").args(["dump", tree]))?);
    }
    let files = ["netrc", "Dir::Etc::netrc/f", "netrcparts", "Dir::Etc::netrcparts/d"];
    let files = run(Command::new("apt-config").arg("shell").args(files))?;
    Ok(lines + &password_files(&String::from_utf8_lossy(&files)))
}

/// From `name='path'` as `apt-config shell` prints it.
fn password_files(shell: &str) -> String {
    let assignments = shell.lines().filter_map(|line| line.split_once('='));
    assignments.map(|(name, path)| format!("Dir::Etc::{name} \"{}\";\n", path.trim_matches('\''))).collect()
}

/// Whether a Debian version such as `1.95.0+dfsg1-2~bpo13+1` is a package of this upstream release.
fn is_release(version: &str, upstream: &str) -> bool {
    version.strip_prefix(upstream).is_some_and(|rest| rest.starts_with(['+', '-']))
}

fn is_deb(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "deb")
}

/// The mirror that the caller names, or else that of this machine.
fn mirror() -> Result<String, String> {
    if let Some(named) = std::env::var(MIRROR).ok().filter(|uri| !uri.is_empty()) {
        return Ok(named);
    }
    let output = run(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN)"]))?;
    debian_mirror(&String::from_utf8_lossy(&output)).ok_or_else(|| {
        format!(
            "apt knows no Debian mirror here: on Debian, run apt-get update once, as root; elsewhere (Ubuntu), set \
             {MIRROR} to the address of one"
        )
    })
}

/// From lines of repository and origin. Mirrors of security updates lack the suites themselves.
fn debian_mirror(targets: &str) -> Option<String> {
    let origins = targets.lines().filter_map(|line| line.split_once(' '));
    let mut debian = origins.filter(|(_, origin)| *origin == "Debian").map(|(uri, _)| uri);
    debian.find(|uri| !uri.contains("-security")).map(str::to_owned)
}

/// The standard output of a program; an error with its standard error, if it fails.
pub fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = format!("{command:?}").replace('"', "");
    let output = command.output().map_err(|error| format!("{name} cannot be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} failed ({}): {}", output.status, said.trim().replace('\n', "; ")));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_release_of_the_compiler_will_do() {
        assert!(is_release("1.95.0+dfsg1-2~bpo13+1", "1.95.0"));
        assert!(is_release("1.95.0-1", "1.95.0"));
        assert!(!is_release("1.95.0~rc1-1", "1.95.0"));
        assert!(!is_release("1.95.01-1", "1.95.0"));
        assert!(!is_release("1.96.0+dfsg1-1", "1.95.0"));
    }

    #[test]
    fn ubuntu_s_own_repositories_and_security_updates_are_no_debian_mirror() {
        let ubuntu = "http://mirror.test/ubuntu/ Ubuntu\n";
        assert_eq!(debian_mirror(ubuntu), None);
        let debian = "http://mirror.test/debian-security/ Debian\nhttp://mirror.test/debian/ Debian\n";
        assert_eq!(
            debian_mirror(&format!("{ubuntu}{debian}")).as_deref(),
            Some("http://mirror.test/debian/")
        );
    }

    #[test]
    fn the_passwords_of_this_machine_s_apt_are_those_of_the_private_one() {
        assert_eq!(
            password_files("netrc='/etc/apt/auth.conf'\nnetrcparts='/etc/apt/auth.conf.d/'\n"),
            "Dir::Etc::netrc \"/etc/apt/auth.conf\";\nDir::Etc::netrcparts \"/etc/apt/auth.conf.d/\";\n"
        );
    }
}
