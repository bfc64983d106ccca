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
    /// Whether a terminal with these variables in its environment has colour. `NO_COLOR` counts if it is not
    /// empty (no-color.org).
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

/// The colours of roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// The terminal's own blue, yellow and cyan, which suit its background.
    Terminal,
    /// Sky blue, vermilion, orange and bluish green of M. Okabe and K. Ito, "Color Universal Design" (2008),
    /// distinct for people with any kind of colour blindness. Shown as their nearest of the 256 colours, so
    /// the same on every terminal.
    OkabeIto,
    /// The terminal's brightest, nothing grey: for projectors and bad eyes.
    Contrast,
}

impl Palette {
    /// The colours of local, remote, cache, warnings, names and less important text.
    fn hues(self) -> [Color; 6] {
        match self {
            Palette::Terminal => {
                [Color::LightBlue, Color::Yellow, Color::Gray, Color::Yellow, Color::Cyan, Color::DarkGray]
            }
            // #5fafd7, #d75f00, #a8a8a8, #d7af00, #00af87, #808080 of xterm's 256.
            Palette::OkabeIto => [74, 166, 248, 178, 36, 244].map(Color::Indexed),
            Palette::Contrast => [
                Color::LightCyan,
                Color::LightYellow,
                Color::White,
                Color::LightYellow,
                Color::LightGreen,
                Color::White,
            ],
        }
    }
}

/// Numbers from which on a share is emphasised, or below which it is dimmed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Remote share that is emphasised, percent.
    pub remote_from_pct: f64,
    /// Resident memory below which a remote share is dim, bytes.
    pub dim_below_bytes: u64,
}

impl Default for Limits {
    /// A fifth; and 16 MiB, which the last-level cache of a server keeps.
    fn default() -> Limits {
        Limits { remote_from_pct: 20.0, dim_below_bytes: 16 << 20 }
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
    /// Eight levels, lowest first.
    pub levels: &'static [char],
    /// Five shades of a cell, lightest first.
    pub shades: &'static [char],
    pub ellipsis: char,
    pub descending: char,
    pub ascending: char,
    /// Branches of the tree: a child, the last child, a line going on, none.
    pub branch: [&'static str; 4],
    /// The place that is shown, on the time bar.
    pub here: char,
    pub horizontal: char,
    pub vertical: char,
    pub ended: char,
    pub followed: char,
    pub tagged: char,
    pub dot: char,
    pub at_least: &'static str,
}

static UNICODE: Glyphs = Glyphs {
    local: '█',
    remote: '▒',
    empty: '·',
    levels: &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
    shades: &[' ', '░', '▒', '▓', '█'],
    ellipsis: '…',
    descending: '▼',
    ascending: '▲',
    branch: ["├─", "└─", "│ ", "  "],
    here: '▲',
    horizontal: '─',
    vertical: '│',
    ended: '×',
    followed: '»',
    tagged: '+',
    dot: '·',
    at_least: "≥",
};

static ASCII: Glyphs = Glyphs {
    local: '#',
    remote: '=',
    empty: '.',
    // Digits would read as a number.
    levels: &['_', '.', ':', ';', '=', '+', '*', '#'],
    shades: &[' ', '.', ':', '*', '#'],
    ellipsis: '~',
    descending: 'v',
    ascending: '^',
    branch: ["|-", "`-", "| ", "  "],
    here: '^',
    horizontal: '-',
    vertical: '|',
    ended: 'x',
    followed: '>',
    tagged: '+',
    dot: '-',
    at_least: ">=",
};

/// One way to draw everything.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    colour: bool,
    pub glyphs: &'static Glyphs,
    palette: Palette,
    pub limits: Limits,
}

impl Theme {
    pub fn new(colour: bool, ascii: bool) -> Theme {
        let glyphs = if ascii { &ASCII } else { &UNICODE };
        Theme { colour, glyphs, palette: Palette::Terminal, limits: Limits::default() }
    }

    /// The same with other colours, and other numbers that stand out.
    pub fn with(self, palette: Palette, limits: Limits) -> Theme {
        Theme { palette, limits, ..self }
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

    /// Colours of the palette. Blue and yellow are the pair that the colour-blind tell apart; what matters differs by weight or
    /// line as well.
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
        let [local, remote, cache, warn, name, dim] = self.palette.hues();
        match role {
            Role::Plain => style,
            Role::Title => style.fg(name).add_modifier(Modifier::BOLD),
            Role::Header => style.add_modifier(Modifier::UNDERLINED),
            Role::Sorted => style.fg(name).add_modifier(Modifier::UNDERLINED | Modifier::BOLD),
            Role::Selected => style.add_modifier(Modifier::REVERSED),
            Role::Dim => style.fg(dim),
            Role::Local => style.fg(local),
            Role::Remote => style.fg(remote).add_modifier(Modifier::BOLD),
            Role::Cache => style.fg(cache),
            Role::Warn => style.fg(warn),
            Role::Alert => style.fg(warn).add_modifier(Modifier::REVERSED | Modifier::BOLD),
            Role::Key => style.fg(name),
            Role::Match => style.fg(name).add_modifier(Modifier::UNDERLINED),
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
        let palettes = [Palette::Terminal, Palette::OkabeIto, Palette::Contrast];
        for (colour, palette) in
            [false, true].into_iter().flat_map(|colour| palettes.map(|palette| (colour, palette)))
        {
            let theme = Theme { palette, ..Theme::new(colour, true) };
            let (local, remote) = (theme.style(Role::Local), theme.style(Role::Remote));
            assert_ne!(local.add_modifier, remote.add_modifier);
            assert_ne!(theme.glyphs.local, theme.glyphs.remote);
            assert!(!colour || local.fg != remote.fg, "{palette:?}");
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
