//! The whole terminal as a page that is redrawn without flicker, and restored on every way out.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use crate::cli::color;
use crate::cli::line::Line;

/// Whether the terminal is in use, so that it has to be restored.
static IN_USE: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal's alternate screen; the drop restores the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    size: (u16, u16),
    shown: Vec<Line>,
}

impl Screen {
    /// Whether there is a terminal to draw on and to read keys from.
    pub(super) fn is_possible() -> bool {
        io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    /// Takes the terminal over. A panic restores it before its message is printed.
    pub(super) fn enter() -> io::Result<Self> {
        HOOK.call_once(|| {
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                print(panic);
            }));
        });
        terminal::enable_raw_mode()?;
        IN_USE.store(true, Ordering::SeqCst);
        // From here on the drop restores what has been changed, also after an error.
        let screen = Self { size: (0, 0), shown: Vec::new() };
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(screen)
    }

    /// Columns and rows of the terminal.
    pub(super) fn size() -> io::Result<(u16, u16)> {
        terminal::size()
    }

    /// Lets the next draw write everything.
    pub(super) fn forget(&mut self) {
        self.size = (0, 0);
    }

    /// Shows these lines from the top; only those that have changed are written, all at once.
    pub(super) fn draw(&mut self, lines: &[Line], size: (u16, u16)) -> io::Result<()> {
        let (columns, rows) = size;
        let mut out: Vec<u8> = Vec::new();
        queue!(out, BeginSynchronizedUpdate)?;
        let unchanged = out.len();
        if self.size != size {
            queue!(out, Clear(ClearType::All))?;
            (self.size, self.shown) = (size, Vec::new());
        }
        self.shown.resize(usize::from(rows), Line::default());
        let (width, empty) = (usize::from(columns), Line::default());
        for (row, shown) in (0..rows).zip(&mut self.shown) {
            let line = lines.get(usize::from(row)).unwrap_or(&empty);
            if line != shown {
                // Spaces overwrite the rest: to clear it would blank the last column of a full line.
                queue!(out, MoveTo(0, row), Print(line.for_terminal(color::on_stdout(), width)))?;
                line.clone_into(shown);
            }
        }
        if out.len() == unchanged {
            return Ok(());
        }
        queue!(out, EndSynchronizedUpdate)?;
        let mut terminal = io::stdout().lock();
        terminal.write_all(&out)?;
        terminal.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if IN_USE.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs no restoring.
        let _shown =
            execute!(io::stdout(), EndSynchronizedUpdate, EnableLineWrap, Show, LeaveAlternateScreen);
        let _cooked = terminal::disable_raw_mode();
    }
}
