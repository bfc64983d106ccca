//! The machines that guests are: reads `topologies.toml`.

use serde::Deserialize;
use vmtests_protocol::{Hmat, Machine, Node, Pmu};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    pub name: String,
    pub about: String,
    pub sockets: u32,
    /// Hardware threads per core.
    pub threads: u32,
    /// CPUs of each node; 0 makes a memory-only node.
    pub cpus: Vec<u32>,
    /// Memory of each node.
    pub mem_mib: Vec<u64>,
    pub distances: Vec<Vec<u32>>,
    /// Further words of the kernel's command line.
    #[serde(default)]
    pub boot: Option<String>,
    /// QEMU's name of the processor (amd64); `None` for the one with all that QEMU can do.
    #[serde(default)]
    pub processor: Option<String>,
    /// The node of an NVMe disk; `None` for no disk with one controller.
    #[serde(default)]
    pub disk_node: Option<u32>,
    /// Nodes of the controllers of an NVMe disk with several paths.
    #[serde(default)]
    pub disk_paths: Vec<u32>,
    /// The file system on the disk: `ext4`.
    #[serde(default)]
    pub disk_format: Option<String>,
    /// Rows of an HMAT: node of the CPU, node of the memory, latency in ns, bandwidth in GiB/s.
    #[serde(default)]
    pub hmat: Vec<[u64; 4]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    topology: Vec<Topology>,
}

pub fn parse(text: &str) -> Result<Vec<Topology>, String> {
    let file: File = toml::from_str(text).map_err(|error| format!("topologies.toml: {error}"))?;
    for topology in &file.topology {
        topology.check().map_err(|why| format!("topologies.toml: topology {}: {why}", topology.name))?;
    }
    Ok(file.topology)
}

impl Topology {
    pub fn machine(&self, pmu: Pmu, lockdown: Option<String>) -> Machine {
        let mut first = 0;
        let nodes = self
            .cpus
            .iter()
            .zip(&self.mem_mib)
            .map(|(&count, &mem_mib)| {
                let cpus = (first..first + count).collect();
                first += count;
                Node { cpus, mem_mib }
            })
            .collect();
        Machine {
            topology: self.name.clone(),
            sockets: self.sockets,
            threads_per_core: self.threads,
            nodes,
            distances: self.distances.clone(),
            pmu,
            lockdown,
            boot: self.boot.clone(),
            processor: self.processor.clone(),
            disk_node: self.disk_node,
            disk_paths: self.disk_paths.clone(),
            disk_format: self.disk_format.clone(),
            hmat: self.hmat.iter().map(described).collect(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let nodes = self.cpus.len();
        if nodes == 0 || self.mem_mib.len() != nodes {
            return Err(format!("{nodes} nodes in cpus, {} in mem_mib", self.mem_mib.len()));
        }
        if self.distances.len() != nodes || self.distances.iter().any(|row| row.len() != nodes) {
            return Err(format!("distances are not {nodes} rows of {nodes}"));
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, &distance) in row.iter().enumerate() {
                // The kernel throws the whole table away when a rule of the SLIT is broken.
                if (from == to) != (distance == 10) || !(10..255).contains(&distance) {
                    return Err(format!(
                        "distance {from} → {to} is {distance}: 10 on the diagonal, 11 to 254 elsewhere"
                    ));
                }
            }
        }
        let disks = self.disk_node.iter().chain(&self.disk_paths);
        if let Some(node) = disks.copied().find(|node| *node as usize >= nodes) {
            return Err(format!("its disk is on node {node} of {nodes}"));
        }
        if self.disk_node.is_some() && !self.disk_paths.is_empty() {
            return Err("it has a disk with one controller and one with several".to_owned());
        }
        let has_disk = self.disk_node.is_some() || !self.disk_paths.is_empty();
        if let Some(format) = self.disk_format.as_ref().filter(|format| *format != "ext4" || !has_disk) {
            return Err(format!("no disk has the file system {format}"));
        }
        if let Some(row) = self.hmat.iter().find(|row| row[..2].iter().any(|node| *node >= nodes as u64)) {
            return Err(format!("its HMAT has the nodes {} and {} of {nodes}", row[0], row[1]));
        }
        let cpus: u32 = self.cpus.iter().sum();
        let unit = self.sockets * self.threads;
        if unit == 0 || cpus == 0 || !cpus.is_multiple_of(unit) {
            return Err(format!(
                "{cpus} CPUs do not make {} sockets of {}-thread cores",
                self.sockets, self.threads
            ));
        }
        Ok(())
    }
}

fn described(&[from, to, ns, gib_per_s]: &[u64; 4]) -> Hmat {
    Hmat { from: from as u32, to: to as u32, ns, gib_per_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = include_str!("../topologies.toml");

    #[test]
    fn the_shipped_topologies_are_sound_and_have_their_names_once() {
        let topologies = parse(SHIPPED).unwrap();
        let mut names: Vec<_> = topologies.iter().map(|topology| &topology.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), topologies.len());
        for needed in ["1", "2", "2+1", "4", "16"] {
            assert!(names.iter().any(|name| *name == needed), "{needed} is missing");
        }
    }

    #[test]
    fn cpus_are_dealt_out_node_by_node() {
        let topology = parse(SHIPPED).unwrap().into_iter().find(|topology| topology.name == "2+1").unwrap();
        let machine = topology.machine(Pmu::Absent, None);
        assert_eq!(machine.nodes[1].cpus, [2, 3]);
        assert!(machine.nodes[2].cpus.is_empty());
        assert_eq!(machine.cpus(), 4);
    }

    #[test]
    fn a_broken_distance_names_its_place() {
        let text = "[[topology]]\nname='x'\nabout=''\nsockets=1\nthreads=1\ncpus=[1,1]\nmem_mib=[64,64]\ndistances=[[10,9],[9,10]]\n";
        assert!(parse(text).unwrap_err().contains("distance 0 → 1 is 9"));
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        assert!(parse("[[topology]]\nname='x'\ncpu=[1]\n").unwrap_err().contains("cpu"));
    }
}
