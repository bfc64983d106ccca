//! Rules of findings, by the names on the command line.

use super::{BadValue, bad};
use crate::finding::{Options, rules};
use crate::text::clean_str;

/// The refusal of an id that no rule has.
pub fn no_rule(flag: &'static str, id: &str) -> BadValue {
    let near: Vec<&str> = rules::RULES
        .iter()
        .map(|rule| rule.id)
        .filter(|known| id.split('-').any(|word| word.len() > 3 && known.contains(word)))
        .collect();
    let hint = if near.is_empty() { String::new() } else { format!(", did you mean {}?", near.join(" or ")) };
    bad(flag, format!("no rule is called '{}'{hint} (numatop-ng list findings shows all)", clean_str(id)))
}

/// The rules that `--rules` names; names with a dash are excluded from all rules.
///
/// # Errors
/// An id that no rule has, or both kinds of names.
pub fn rules(ids: &[String]) -> Result<Options, BadValue> {
    let mut options = Options::default();
    for id in ids.iter().map(|id| id.trim()).filter(|id| !id.is_empty()) {
        let (name, without) = id.strip_prefix('-').map_or((id, false), |name| (name, true));
        if rules::by_id(name).is_none() {
            return Err(no_rule("--rules", name));
        }
        if without {
            options.without.insert(name.to_owned());
        } else {
            options.only.get_or_insert_default().insert(name.to_owned());
        }
    }
    if options.only.is_some() && !options.without.is_empty() {
        return Err(bad("--rules", "takes names of rules, or names with a '-' in front, not both"));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_chosen_or_left_out() {
        let of = |ids: &[&str]| rules(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).unwrap(), Options::default());
        assert!(of(&["zone-reclaim"]).unwrap().only.unwrap().contains("zone-reclaim"));
        assert!(of(&["-zone-reclaim"]).unwrap().without.contains("zone-reclaim"));
        assert!(of(&["zone-reclaim", "-quota-throttled"]).is_err());
        let error = of(&["zone-reclaims"]).unwrap_err().to_string();
        assert!(error.contains("did you mean zone-reclaim?"), "{error}");
    }
}
