//! The live view: threads, one channel, and the loop that turns messages into screens.
//!
//! A collector thread owns the source, and a deriver thread makes intervals of its samples. An input thread
//! reads keys, a signal thread waits for signals, and another thread writes to the terminal. The calling
//! thread owns the state and waits only for messages.

mod closeup;
mod collector;
mod deriver;
pub mod history;
pub mod input;
mod mail;
mod player;
pub mod ring;
mod scan;
mod screen_writer;
pub mod screens;
pub mod state;
mod terminal;
pub mod theme;
pub mod update;
pub mod widgets;

use std::io::PipeReader;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::Rect;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGTSTP};
use signal_hook::iterator::Signals;

use self::collector::{Collector, Command};
use self::deriver::Deriver;
use self::history::{Shown, Want};
use self::input::Effect;
use self::mail::{Inbox, Mail};
use self::terminal::Tty;
use self::theme::{Role, Theme};
use self::update::{App, Settings};
use self::widgets::header::{self, Rows};
use self::widgets::pen::Pen;
use self::widgets::{footer, timebar};
use crate::analysis::curve::Curve;
use crate::analysis::highlights::Highlights;
use crate::analysis::summary::SummaryRow;
use crate::collect::mappings::Mappings;
use crate::finding::Engine;
use crate::model::process::{Details, ProcessId};
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::overhead::Statistics;
use crate::program::signals;
use crate::record::recorder::Progress;
use crate::settings::Value;
use crate::source::recording::Recording;
use crate::source::{Focus, Source};

pub use self::theme::{ColourChoice, Limits, Palette};

/// Maximum messages that wait. The collector must not wait, so its messages have a separate place (`mail`).
const QUEUE: usize = 64;

/// The measuring thread is waited for at most this time when the view is closed. Its probes end with the
/// process.
const PATIENCE: Duration = Duration::from_millis(1500);

/// As [`PATIENCE`], while a recording is to be ended: a slow disk is waited for, until a second signal.
const PATIENCE_OF_RECORDINGS: Duration = Duration::from_secs(60);

/// A second signal at least this time after the first ends the program at once.
const SECOND_SIGNAL: Duration = Duration::from_secs(1);

/// Choices of the command line: of the view, and of its terminal.
pub struct TuiOptions {
    pub view: Settings,
    /// Closes the view after this many intervals.
    pub iterations: Option<u64>,
    pub mouse: bool,
    pub colour: ColourChoice,
    pub ascii: bool,
    pub palette: Palette,
    pub limits: Limits,
    pub keeper: Keeper,
}

/// Settings of the user, for the view.
pub struct Keeper {
    /// Keeps choices, by flag, and returns the name of the file that has them now.
    pub keep: Box<Keep>,
    /// A word about the file as it was found, for the first frame.
    pub told: Option<String>,
}

/// Writes choices, by flag, where they are read at the next start. Returns the name of the place.
type Keep = dyn Fn(&[(&'static str, Option<Value>)]) -> Result<String>;

/// Why the view was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Quit,
    /// By this signal: the shell expects 128 plus its number.
    Signal(i32),
}

/// Messages of the threads to the loop.
enum Message {
    /// Messages are in the mailbox.
    Mail,
    /// To the deriver: a sample, and how many it holds.
    Sample(Arc<HostFacts>, Box<Sample>, u64),
    /// Progress of the recording of the samples, each time before one of them.
    Recording(Progress),
    /// To the deriver: the recording was moved; the one before the sample to show, and that.
    Moved(Arc<HostFacts>, Option<Box<Sample>>, Box<Sample>),
    /// To the deriver: the interval that the screen wants.
    Want(Want),
    /// An interval, from the deriver.
    Shown(Box<Shown>),
    /// Moments worth a look among the samples that were kept when a pause began.
    KeptMarks(Box<Highlights>),
    SourceEnded,
    /// Trouble with the followed file, none if all is well; and whether more of it can come.
    Outlook {
        what: Option<String>,
        more: bool,
    },
    /// To the deriver: an engine that has seen the minutes up to the sample of this time, CLOCK_MONOTONIC in ns.
    Folded(Box<Engine>, u64),
    /// Moments worth a look in the recording, and the part that has been scanned, 0 to 1.
    Marks(Box<Highlights>, f64),
    /// Curves of the part of the recording that was looked through.
    Curve(Box<Curve>),
    /// Numbers over the whole recording.
    Summary(Vec<SummaryRow>),
    /// The source could not start or go on.
    Failed(anyhow::Error),
    Inspected(u32, Result<Details, String>),
    Mapped(ProcessId, Result<Mappings, String>),
    /// The scope could not be changed, for this reason.
    NotScoped(String),
    /// Another set of events cannot be counted, for this reason.
    NotCounted(String),
    /// To the deriver: a report of the samples that are kept is wanted in a new file of this name.
    WritePage(String),
    /// The file that contains the report, or the reason why it was not written.
    PageWritten(Result<String, String>),
    /// Stacks that were sampled, or why they cannot be.
    Hot(Result<StackBatch, String>),
    /// Why memory use cannot be sampled.
    NotSampled(String),
    /// Statistics of our own programs, or the reason why they are missing.
    Statistics(Result<Statistics, String>),
    Input(Event),
    Signal(i32),
    /// The terminal accepts output again, or has closed.
    Terminal,
}

/// Shows the measurements of the source made by `start`, until the user quits or a signal comes; `recorded`:
/// the source records them, too. The first frame is drawn before `start` is called; the terminal is given
/// back before this returns.
///
/// # Errors
/// Errors of `start` or of the source, or that the terminal cannot be used.
pub fn run(
    options: TuiOptions,
    recorded: bool,
    start: impl FnOnce() -> Result<Box<dyn Source>> + Send + 'static,
) -> Result<Ended> {
    let (interval, iterations, mouse) = (options.view.interval, options.iterations, options.mouse);
    let patience = if recorded { PATIENCE_OF_RECORDINGS } else { PATIENCE };
    let (app, keep) = new_app(options);
    run_with((app, &keep), mouse, iterations, patience, move |deriver, commands, wake| {
        collector::collect(start, interval, &deriver.mail, &commands, wake)
    })
}

/// Shows a recording from the sample at `at` on, until the user quits or a signal comes. It lasts from the
/// first to the second of `span`, as wall clock in ns since 1970; with `follow` more is waited for.
///
/// # Errors
/// The recording cannot be read, or the terminal cannot be used.
pub fn replay(
    options: TuiOptions,
    recording: Recording,
    span: (i64, i64),
    at: i64,
    follow: bool,
) -> Result<Ended> {
    let mouse = options.mouse;
    let (mut app, keep) = new_app(options);
    app.state.replay(span, follow);
    run_with((app, &keep), mouse, None, PATIENCE, move |deriver, commands, wake| {
        player::play(recording, span, at, follow, &deriver.messages, &commands, wake)
    })
}

fn new_app(options: TuiOptions) -> (App, Box<Keep>) {
    let theme = Theme::choose(options.colour, options.ascii, |name| std::env::var(name).ok());
    let theme = theme.with(options.palette, options.limits);
    let mut app = App::new(options.view, theme, TimeZone::system());
    app.state.message = options.keeper.told;
    (app, options.keeper.keep)
}

/// The view, with a separate thread for the source of samples. At the end that thread is waited for up to
/// `patience`.
fn run_with(
    (mut app, keep): (App, &Keep),
    mouse: bool,
    iterations: Option<u64>,
    patience: Duration,
    collect: impl FnOnce(&Deriver, Receiver<Command>, PipeReader) -> Result<()> + Send + 'static,
) -> Result<Ended> {
    let (sender, messages) = sync_channel(QUEUE);
    let caught = signals::ending().chain([SIGTSTP, SIGCONT]);
    let signals = Signals::new(caught).context("catching signals")?;
    let handle = signals.handle();
    spawn("signals", sender.clone(), move |sender| forward_signals(signals, &sender))?;
    // A signal that came earlier is not delivered again.
    if let Some(signal) = signals::ended_by() {
        return Ok(Ended::Signal(signal));
    }
    let wake = sender.clone();
    let entered = Tty::enter(mouse, move || {
        // Where messages wait already, the screen is drawn after them.
        let _ = wake.try_send(Message::Terminal);
    });
    let mut tty = match entered {
        Err(_) if terminal::is_closed() => return Ok(Ended::Signal(SIGHUP)),
        entered => entered?,
    };
    spawn("closed", sender.clone(), |sender| {
        terminal::until_closed();
        let _ = sender.send(Message::Signal(SIGHUP));
    })?;
    let mail = Mail::new(sender.clone());
    let drawn = tty.draw(&mut app);
    let mut ended = drawn.map(|()| Ended::Quit);
    if ended.is_ok() {
        spawn("input", sender.clone(), forward_input)?;
        let inbox = mail.inbox();
        let deriver = Deriver::start(app.want(), mail)?;
        let wants = deriver.mail.clone();
        let mut collector =
            Collector::spawn(wants.clone(), move |commands, wake| collect(&deriver, commands, wake))?;
        ended = show((&mut app, keep), &mut tty, (&mut collector, &wants), (&messages, &inbox), iterations);
        collector.quit();
        // Before the collector is waited for: a player may be about to send.
        drop(messages);
        drop(tty);
        collector.stop(patience);
    }
    handle.close();
    match ended {
        // The kernel sends a signal only to processes with that controlling terminal.
        Err(_) if terminal::is_closed() => Ok(Ended::Signal(signals::ended_by().unwrap_or(SIGHUP))),
        ended => ended,
    }
}

fn show(
    (app, keep): (&mut App, &Keep),
    tty: &mut Tty,
    (collector, deriver): (&mut Collector, &Mail),
    (messages, inbox): (&Receiver<Message>, &Inbox),
    iterations: Option<u64>,
) -> Result<Ended> {
    // Two samples bracket the first short interval, which gives the first screen something to show.
    let (mut focus, mut want) = (Focus::default(), app.want());
    let mut samples_left = iterations.map(|intervals| intervals.saturating_add(2));
    loop {
        let first = messages.recv().context("all threads have ended")?;
        // Whatever else has come meanwhile is drawn in the same frame.
        let all: Vec<Message> = std::iter::once(first).chain(messages.try_iter()).collect();
        for message in all.into_iter().chain(inbox.take()) {
            let effect = match message {
                Message::Mail | Message::Terminal => None,
                // The deriver makes an interval of these.
                Message::Sample(..) | Message::Moved(..) | Message::Folded(..) | Message::Want(_) => None,
                Message::WritePage(_) => None,
                Message::PageWritten(written) => {
                    app.page_written(&written);
                    None
                }
                Message::Shown(shown) => {
                    samples_left = samples_left.map(|left| left.saturating_sub(shown.taken));
                    app.show(*shown)
                }
                Message::KeptMarks(marks) => {
                    app.state.kept_marked(*marks);
                    None
                }
                Message::Recording(progress) => {
                    app.state.recording = Some(progress);
                    None
                }
                Message::SourceEnded => {
                    app.state.source_ended();
                    None
                }
                Message::Outlook { what, more } => {
                    app.state.outlook(what.as_deref(), more);
                    None
                }
                Message::Marks(marks, share) => {
                    app.state.marked(*marks, share);
                    None
                }
                Message::Curve(curve) => {
                    app.state.curve = Arc::new(*curve);
                    None
                }
                Message::Summary(rows) => {
                    app.state.summary = rows;
                    None
                }
                Message::Failed(error) => return Err(error),
                Message::Inspected(pid, found) => {
                    app.inspected(pid, found);
                    None
                }
                Message::Mapped(process, found) => {
                    app.mapped(process, found);
                    None
                }
                Message::NotScoped(why) => {
                    app.not_scoped(&why);
                    None
                }
                Message::Hot(news) => {
                    app.hot_news(news);
                    None
                }
                Message::NotSampled(why) => {
                    app.state.message = Some(why);
                    None
                }
                Message::Statistics(now) => {
                    app.statistics(now);
                    None
                }
                Message::NotCounted(why) => {
                    app.not_counted(&why);
                    None
                }
                Message::Input(Event::Key(key)) if key.kind != KeyEventKind::Release => app.press(key),
                Message::Input(Event::Mouse(mouse)) => app.mouse(mouse),
                // The size is read when the frame is drawn.
                Message::Input(_) => None,
                Message::Signal(SIGTSTP) => Some(Effect::Suspend),
                Message::Signal(SIGCONT) => {
                    tty.resume()?;
                    None
                }
                Message::Signal(signal) => return Ok(Ended::Signal(signal)),
            };
            match effect {
                None => {}
                Some(Effect::Quit) => return Ok(Ended::Quit),
                Some(Effect::Suspend) => tty.suspend()?,
                Some(Effect::Redraw) => tty.redraw()?,
                Some(Effect::Keep) => {
                    app.state.message = Some(match keep(&app.choices()) {
                        Ok(place) => format!("defaults saved: {place}"),
                        Err(error) => format!("defaults not saved: {error:#}"),
                    });
                }
                Some(Effect::Copy) => {
                    if let Some(text) = app.state.clipboard.take() {
                        tty.copy(&text)?;
                    }
                }
                Some(Effect::WritePage) => {
                    // A deriver that has ended gives its reason.
                    if let Some(name) = app.state.report.take() {
                        let _ = deriver.send(Message::WritePage(name));
                    }
                }
                Some(Effect::SetInterval(interval)) => collector.send(Command::SetInterval(interval)),
                Some(Effect::SetScope(scope)) => collector.send(Command::SetScope(scope)),
                Some(Effect::Seek(seek)) => collector.send(Command::Seek(seek)),
                Some(Effect::SetEvents(set)) => collector.send(Command::SetEvents(set)),
                Some(Effect::Map { process, rss_bytes, exact }) => {
                    collector.send(Command::Map { process, rss_bytes, exact });
                }
                Some(Effect::SetHot(on)) => collector.send(Command::SetHot(on)),
                Some(Effect::SetAccess(on)) => collector.send(Command::SetAccess(on)),
                Some(Effect::SetStatistics(on)) => collector.send(Command::SetStatistics(on)),
                Some(Effect::Inspect(pid, start_ns)) => collector.send(Command::Inspect(pid, start_ns)),
            }
        }
        let now = app.want();
        if now != want {
            want = now;
            // A deriver that has ended gives its reason.
            let _ = deriver.send(Message::Want(now));
        }
        // One that found no room among the messages.
        if let Some(signal) = signals::ended_by() {
            return Ok(Ended::Signal(signal));
        }
        tty.draw(app)?;
        let now = app.in_view();
        if now != focus {
            focus.clone_from(&now);
            collector.send(Command::Focus(now));
        }
        if samples_left == Some(0) {
            return Ok(Ended::Quit);
        }
    }
}

/// Starts a thread that is never joined: it ends when the loop has ended.
fn spawn(
    name: &str,
    sender: SyncSender<Message>,
    work: impl FnOnce(SyncSender<Message>) + Send + 'static,
) -> Result<()> {
    let thread = thread::Builder::new().name(name.into()).spawn(move || work(sender));
    thread.map(drop).with_context(|| format!("starting the {name} thread"))
}

fn forward_input(sender: SyncSender<Message>) {
    // Without input from a terminal there is nothing to forward.
    while let Ok(event) = event::read() {
        if sender.send(Message::Input(event)).is_err() {
            return;
        }
    }
}

fn forward_signals(mut signals: Signals, sender: &SyncSender<Message>) {
    let mut first: Option<Instant> = None;
    for signal in signals.forever() {
        // Where messages wait already, the loop sees one that ends us after them.
        let _ = sender.try_send(Message::Signal(signal));
        if matches!(signal, SIGTSTP | SIGCONT) {
            continue;
        }
        let began = *first.get_or_insert_with(Instant::now);
        if began.elapsed() > SECOND_SIGNAL {
            // Something hangs, a disk perhaps.
            terminal::leave();
            std::process::exit(signals::exit_code(signal).into());
        }
    }
}

/// Draws everything into an empty buffer.
pub fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let (parts, state) = (app.parts(), &app.state);
    let body = parts.body.intersection(area);
    let Some(snapshot) = state.snapshot() else {
        let text = "numatop-ng: loading the probes and taking the first sample";
        Pen::new(buf, area, 0, state.theme.glyphs.ellipsis).write(text, state.theme.style(Role::Dim));
        return;
    };
    let tasks = &app.screens.tasks;
    let rows = Rows { facts: tasks.facts(snapshot, parts.title.width), shown: tasks.list.rows().len() };
    header::render(snapshot, state, &rows, &parts, buf);
    if let Some(timeline) = state.timeline() {
        timebar::render(
            timeline,
            &state.curve,
            &state.zone,
            &state.theme,
            parts.time.intersection(area),
            buf,
        );
    }
    app.visible().draw(state, body, buf);
    if let Some(picker) = &app.picker {
        picker.draw(&state.theme, body, buf);
    }
    let footer = parts.footer.intersection(area);
    let keys = footer::Keys { context: app.contexts(), offers: &|action| app.offers(action) };
    footer::render(app.prompt.as_ref(), state.message.as_deref(), &keys, &state.theme, footer, buf);
}
