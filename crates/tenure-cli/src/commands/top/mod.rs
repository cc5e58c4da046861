//! `tenure top`: the living leases on one screen, as they count down.

mod board;
mod draw;

use super::{Caller, stop_signal};
use crate::args::Top;
use crate::failure::Failure;
use crate::print;
use crate::screen::{self, Bars, Screen};
use board::{Board, Look, Pressed};
use draw::View;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure::{Client, Error, v1};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often the server is asked.
const LOOK: Duration = Duration::from_secs(1);

/// Leases that are asked for; nobody reads further.
const LEASES_MAX: usize = 10_000;

/// Keys that nobody has acted on yet.
const KEYS_MAX: usize = 64;

pub(crate) async fn top(caller: &Caller, args: Top) -> Result<ExitCode, Failure> {
    let what = "cannot show the top";
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !args.once && !is_terminal {
        let next = "Type `tenure top --once` for one frame, or `tenure ls --watch -o jsonl` for programs.";
        return Err(Failure::usage(what, "this is no terminal", next));
    }
    let client = caller.connect(what).await?;
    let counts = Arc::new(Counts::default());
    let mut board = Board::new(&caller.addr, args.prefix.unwrap_or_default());
    board.take(look(&client, &counts).await.map_err(|error| Failure::of(what, &error))?);
    if args.once {
        print::text(&draw::text(&view(&board), screen::size()));
        return Ok(ExitCode::SUCCESS);
    }
    let stopped =
        stop_signal().map_err(|error| Failure::before(what, &error.to_string(), "Try `tenure top --once`."))?;
    tokio::spawn(count(client.clone(), counts.clone()));
    let terminal = ratatui::try_init()
        .map_err(|error| Failure::before(what, &error.to_string(), "Try `tenure top --once`, or another terminal."))?;
    let shown = tokio::select! {
        shown = show(terminal, board, &client, &counts) => shown,
        () = stopped => Ok(()),
    };
    ratatui::restore();
    match shown {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::before(what, &error.to_string(), "Try `tenure top --once`, or another terminal.")),
    }
}

fn view(board: &Board) -> View<'_> {
    let screen = Screen::of_stdout();
    let bars = if screen.bars == Bars::None { Bars::Ascii } else { screen.bars };
    View { board, bars, colour: screen.colour }
}

/// Draws until somebody quits. A server that is away may come back.
async fn show(
    mut terminal: DefaultTerminal,
    mut board: Board,
    client: &Client,
    counts: &Counts,
) -> std::io::Result<()> {
    let mut events = events();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        terminal.draw(|frame| frame.render_widget(&view(&board), frame.area()))?;
        tokio::select! {
            _ = looks.tick() => match look(client, counts).await {
                Ok(look) => board.take(look),
                Err(error) => board.trouble = Some(error.to_string()),
            },
            event = events.recv() => match event {
                Some(Event::Key(key)) if press(&mut board, key) == Pressed::Quit => return Ok(()),
                Some(_) => {}
                None => return Ok(()),
            },
        }
    }
}

fn press(board: &mut Board, key: KeyEvent) -> Pressed {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    if is_interrupt { Pressed::Quit } else { board.press(key.code) }
}

/// Keys and changes of size, from a thread of its own: a terminal can only be waited for.
fn events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn look(client: &Client, counts: &Counts) -> Result<Look, Error> {
    let mut request = v1::ListLeasesRequest::default();
    let mut leases = Vec::new();
    while leases.len() < LEASES_MAX {
        let page = client.list_leases(request.clone()).await?;
        leases.extend(page.items);
        if page.next == 0 {
            break;
        }
        request.from = page.next;
    }
    leases.truncate(LEASES_MAX);
    let status = client.status(v1::StatusRequest {}).await?;
    let (granted, ended) = (counts.granted.load(Ordering::Relaxed), counts.ended.load(Ordering::Relaxed));
    Ok(Look { status, leases, granted, ended })
}

/// Events since the start. What happens while a watch is broken is not counted.
#[derive(Default)]
struct Counts {
    granted: AtomicU64,
    ended: AtomicU64,
}

async fn count(client: Client, counts: Arc<Counts>) {
    loop {
        if let Ok(mut replies) = client.watch_stream(v1::WatchRequest::default()).await {
            while let Ok(Some(reply)) = replies.message().await {
                let of = |kind: &str| reply.events.iter().filter(|event| event.kind == kind).count() as u64;
                counts.granted.fetch_add(of("granted"), Ordering::Relaxed);
                counts.ended.fetch_add(of("ended"), Ordering::Relaxed);
            }
        }
        sleep(LOOK).await;
    }
}
