//! What a terminal shows of a download while it goes on, and what a pipe gets instead.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};

use nix::pty::Winsize;

use crate::wheel::TORCH;
use crate::world::{FETCH, World};
use crate::{PATIENCE, wait_for_pipe};

/// A world whose pip stops half-way through the first download that it is asked for.
fn paused() -> World {
    let world = World::with_torch();
    for pipe in ["pause", "release"] {
        duct::cmd!("mkfifo", world.index().join(pipe).as_std_path()).run().unwrap();
    }
    world
}

/// Lets pip go on, and stop no more.
fn go_on(world: &World) {
    fs_err::remove_file(world.index().join("pause")).unwrap();
    fs_err::write(world.index().join("release"), "go\n").unwrap();
}

/// What comes to a terminal, as it comes.
struct Screen {
    chunks: Receiver<Vec<u8>>,
    shown: Vec<u8>,
}

impl Screen {
    fn of(mut terminal: File) -> Self {
        let (sender, chunks) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Linux ends a terminal whose other side is closed with EIO.
            while let Ok(count @ 1..) = terminal.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { chunks, shown: Vec::new() }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Waits until this is shown.
    fn wait_for(&mut self, text: &str) {
        while !self.text().contains(text) {
            let chunk = self.chunks.recv_timeout(PATIENCE);
            self.shown.extend(chunk.unwrap_or_else(|_| panic!("no `{text}` in {:?}", self.text())));
        }
    }

    /// All that is shown until nobody writes any more.
    fn end(mut self) -> String {
        while let Ok(chunk) = self.chunks.recv_timeout(PATIENCE) {
            self.shown.extend(chunk);
        }
        self.text()
    }
}

#[test]
fn a_terminal_gets_the_size_before_and_a_bar_during_a_download() {
    let world = paused();
    let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = nix::pty::openpty(&size, None).unwrap();
    let mut command = world.command(&FETCH);
    command.env("TERM", "xterm").stdin(Stdio::null()).stdout(Stdio::null()).stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    // The command still has the other end open, and with it the terminal would never be at its end.
    drop(command);
    let mut screen = Screen::of(terminal.master.into());
    wait_for_pipe(&world, "pause");
    screen.wait_for(" 50 % ");
    screen.wait_for("/1.20 MB");
    let during = screen.text();
    let (before, _) = during.split_once(" 50 % ").unwrap();
    assert!(before.contains(&format!("downloading {TORCH} (1.2 MB)")), "the size is told first: {during:?}");
    go_on(&world);
    let shown = screen.end();
    assert!(child.wait().unwrap().success(), "{shown:?}");
    assert!(world.variant().join("lib/libtorch.so").is_file());
    // Erasing a line is the last thing that a bar does.
    let (_, left) = shown.rsplit_once("\u{1b}[2K").unwrap();
    assert!(!left.contains(" % "), "no bar is left behind: {shown:?}");
}

#[test]
fn a_pipe_gets_the_same_as_plain_lines() {
    let world = paused();
    let mut child = world.command(&FETCH).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_pipe(&world, "pause");
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    while !told.contains(" of 1.2 MB (50 %)\n") {
        assert_ne!(lines.read_line(&mut told).unwrap(), 0, "{told}");
    }
    go_on(&world);
    lines.read_to_string(&mut told).unwrap();
    assert!(child.wait().unwrap().success(), "{told}");
    assert!(!told.contains(['\u{1b}', '\r']), "{told:?}");
    let mut lines = told.lines();
    let size = lines.position(|line| line == format!("downloading {TORCH} (1.2 MB)"));
    assert!(size.is_some() && lines.any(|line| line.contains("(50 %)")), "the size is told first: {told}");
}
