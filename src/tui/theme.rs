//! The look of each part of the screen: parts are named by role, and only this file knows colours and glyphs.

use crate::finding::Severity;
use ratatui::style::{Color, Modifier, Style};

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourChoice {
    /// Unless NO_COLOR is set or the terminal has none.
    Auto,
    Always,
    Never,
}

impl ColourChoice {
    /// Whether there is colour on a terminal with these variables in its environment. `NO_COLOR` counts when it is not empty
    /// (no-color.org).
    pub fn holds(self, env: impl Fn(&str) -> Option<String>) -> bool {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        match self {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => set("NO_COLOR").is_none() && !term.starts_with("vt1") && term != "dumb",
        }
    }
}

/// The role of a piece of text for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Plain,
    /// Names of the program, views and pop-ups.
    Title,
    /// Column titles.
    Header,
    /// The column title that rows are sorted by.
    Sorted,
    Selected,
    /// Less important: absent values, zeros, labels.
    Dim,
    /// On the node where it belongs.
    Local,
    /// Away from it.
    Remote,
    /// Memory that the page cache holds.
    Cache,
    /// Worth a look.
    Warn,
    /// Must not be missed: losses, pause.
    Alert,
    /// A key to press.
    Key,
    /// A match of the search.
    Match,
}

impl Role {
    /// The look of the mark of a finding.
    pub fn of(severity: Severity) -> Role {
        match severity {
            Severity::Critical => Role::Alert,
            Severity::Warning => Role::Warn,
            Severity::Info => Role::Dim,
        }
    }
}

/// The characters that pictures are made of.
#[derive(Debug, PartialEq, Eq)]
pub struct Glyphs {
    /// Bars: the local or used part, the remote or cached part, the rest.
    pub local: char,
    pub remote: char,
    pub empty: char,
    /// Eight or ten levels, lowest first.
    pub levels: &'static [char],
    pub ellipsis: char,
    pub descending: char,
    pub ascending: char,
    /// Branches of the tree: a child, the last child, a line going on, none.
    pub branch: [&'static str; 4],
    pub horizontal: char,
    pub vertical: char,
    pub ended: char,
    pub followed: char,
    pub dot: char,
}

static UNICODE: Glyphs = Glyphs {
    local: '█',
    remote: '▒',
    empty: '·',
    levels: &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
    ellipsis: '…',
    descending: '▼',
    ascending: '▲',
    branch: ["├─", "└─", "│ ", "  "],
    horizontal: '─',
    vertical: '│',
    ended: '×',
    followed: '»',
    dot: '·',
};

static ASCII: Glyphs = Glyphs {
    local: '#',
    remote: '=',
    empty: '.',
    levels: &['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'],
    ellipsis: '~',
    descending: 'v',
    ascending: '^',
    branch: ["|-", "`-", "| ", "  "],
    horizontal: '-',
    vertical: '|',
    ended: 'x',
    followed: '>',
    dot: '-',
};

/// One way to draw everything.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    colour: bool,
    pub glyphs: &'static Glyphs,
}

impl Theme {
    pub fn new(colour: bool, ascii: bool) -> Theme {
        Theme { colour, glyphs: if ascii { &ASCII } else { &UNICODE } }
    }

    /// The theme for a terminal with these variables in its environment. A locale counts when one is set and is not UTF-8.
    pub fn choose(colour: ColourChoice, ascii: bool, env: impl Fn(&str) -> Option<String>) -> Theme {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let colour = colour.holds(&env);
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let utf8 = locale.is_none_or(|name| {
            let name = name.to_ascii_lowercase();
            name.contains("utf-8") || name.contains("utf8")
        });
        // The Linux console has 256 or 512 glyphs, bars of eight levels not among them.
        Theme::new(colour, ascii || !utf8 || term == "linux")
    }

    /// Colours are of the terminal's own palette, so that they suit its background. Blue and yellow
    /// are the pair that the colour-blind tell apart; what matters differs by weight or line as well.
    pub fn style(&self, role: Role) -> Style {
        let style = Style::new();
        if !self.colour {
            return match role {
                Role::Plain | Role::Local | Role::Cache => style,
                Role::Title | Role::Key | Role::Warn => style.add_modifier(Modifier::BOLD),
                Role::Header => style.add_modifier(Modifier::UNDERLINED),
                Role::Sorted => style.add_modifier(Modifier::UNDERLINED | Modifier::BOLD),
                Role::Selected => style.add_modifier(Modifier::REVERSED),
                Role::Dim => style.add_modifier(Modifier::DIM),
                Role::Remote | Role::Match => style.add_modifier(Modifier::UNDERLINED),
                Role::Alert => style.add_modifier(Modifier::REVERSED | Modifier::BOLD),
            };
        }
        match role {
            Role::Plain => style,
            Role::Title => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            Role::Header => style.add_modifier(Modifier::UNDERLINED),
            Role::Sorted => style.fg(Color::Cyan).add_modifier(Modifier::UNDERLINED | Modifier::BOLD),
            Role::Selected => style.add_modifier(Modifier::REVERSED),
            Role::Dim => style.fg(Color::DarkGray),
            Role::Local => style.fg(Color::LightBlue),
            Role::Remote => style.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            Role::Cache => style.fg(Color::Gray),
            Role::Warn => style.fg(Color::Yellow),
            Role::Alert => style.fg(Color::Yellow).add_modifier(Modifier::REVERSED | Modifier::BOLD),
            Role::Key => style.fg(Color::Cyan),
            Role::Match => style.fg(Color::Cyan).add_modifier(Modifier::UNDERLINED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(colour: ColourChoice, env: &[(&str, &str)]) -> (bool, bool) {
        let get =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string());
        let theme = Theme::choose(colour, false, get);
        (theme.colour, theme.glyphs == &ASCII)
    }

    #[test]
    fn no_color_counts_unless_colour_is_asked_for() {
        assert_eq!(choose(ColourChoice::Auto, &[]), (true, false));
        assert_eq!(choose(ColourChoice::Auto, &[("NO_COLOR", "")]), (true, false));
        assert_eq!(choose(ColourChoice::Auto, &[("NO_COLOR", "1")]), (false, false));
        assert_eq!(choose(ColourChoice::Always, &[("NO_COLOR", "1")]), (true, false));
        assert_eq!(choose(ColourChoice::Never, &[]), (false, false));
    }

    #[test]
    fn a_locale_without_utf8_means_ascii() {
        assert_eq!(choose(ColourChoice::Auto, &[("LANG", "C.UTF-8")]), (true, false));
        assert_eq!(choose(ColourChoice::Auto, &[("LANG", "en_GB.utf8"), ("LC_ALL", "C")]), (true, true));
        assert_eq!(choose(ColourChoice::Auto, &[("TERM", "linux")]), (true, true));
    }

    #[test]
    fn local_and_remote_differ_by_more_than_hue() {
        for colour in [false, true] {
            let theme = Theme::new(colour, true);
            let (local, remote) = (theme.style(Role::Local), theme.style(Role::Remote));
            assert_ne!(local.add_modifier, remote.add_modifier);
            assert_ne!(theme.glyphs.local, theme.glyphs.remote);
        }
    }

    #[test]
    fn without_colour_there_is_none() {
        use Role::*;
        let theme = Theme::new(false, false);
        for role in
            [Plain, Title, Header, Sorted, Selected, Dim, Local, Remote, Cache, Warn, Alert, Key, Match]
        {
            let style = theme.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
    }

    #[test]
    fn ascii_is_ascii() {
        let chars = [ASCII.local, ASCII.remote, ASCII.empty, ASCII.ellipsis, ASCII.ended, ASCII.dot];
        assert!(chars.iter().chain(ASCII.levels).all(char::is_ascii));
        assert!(ASCII.branch.iter().all(|text| text.is_ascii()));
    }
}
