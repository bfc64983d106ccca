//! Flags of `exporter`: places to listen at, and bounds of the page.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{BadValue, bad};
use crate::cli::ExporterArgs;
use crate::exporter::Limits;
use crate::exporter::server::Address;
use crate::text::clean_str;

/// N-U-M-A on the keys of a telephone.
const PORT: u16 = 6862;

/// Places to listen at: none where the page goes into a file only, or where sockets were `inherited` from a service manager.
///
/// # Errors
/// Something is no address, or there are addresses beside inherited sockets.
pub fn addresses(args: &ExporterArgs, inherited: bool) -> Result<Vec<Address>, BadValue> {
    if inherited && !args.listen.is_empty() {
        return Err(bad(
            "--listen",
            "the service manager passed sockets (LISTEN_FDS): set the address in its .socket unit",
        ));
    }
    if inherited {
        return Ok(Vec::new());
    }
    if args.listen.is_empty() && args.textfile.is_none() {
        return Ok(vec![Address::Net(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT))]);
    }
    args.listen.iter().map(|text| address(text)).collect()
}

fn address(text: &str) -> Result<Address, BadValue> {
    match text.strip_prefix("unix:") {
        Some("") => Err(bad("--listen", "unix: needs a path, as in unix:/run/numatop-ng/metrics.sock")),
        Some(path) => Ok(Address::Unix(PathBuf::from(path))),
        None => text.parse().map(Address::Net).map_err(|_| {
            let text = clean_str(text);
            bad("--listen", format!("{text} is not an address: use 127.0.0.1:6862, [::1]:6862 or unix:PATH"))
        }),
    }
}

/// Bounds of the page.
pub fn limits(args: &ExporterArgs) -> Limits {
    Limits { programs: args.top, containers: args.max_containers, series: args.max_series }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_the_network_or_of_a_file() {
        assert_eq!(address("[::1]:6862").unwrap(), Address::Net("[::1]:6862".parse().unwrap()));
        assert_eq!(address("unix:/run/x").unwrap(), Address::Unix("/run/x".into()));
        for wrong in ["6862", "localhost", "unix:", "127.0.0.1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
