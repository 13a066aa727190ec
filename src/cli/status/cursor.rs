//! The part of the list that is on the screen, and the Job in it that Enter opens.

use super::feed::JobKey;

/// Lines of the list above the first Job.
pub(super) const HEADER: usize = 1;

/// The marked Job, and how far the list is scrolled.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// The Jobs of the list, as they were shown.
    jobs: Vec<JobKey>,
    marked: Option<Marked>,
    /// Lines of the list above the screen.
    offset: usize,
    /// Lines of the list on the screen.
    page: usize,
}

#[derive(Clone, Debug)]
struct Marked {
    job: JobKey,
    /// Its row among the Jobs.
    row: usize,
}

impl Cursor {
    /// A cursor at the first Job.
    pub(super) fn new() -> Self {
        Self { jobs: Vec::new(), marked: None, offset: 0, page: 1 }
    }

    /// The marked Job.
    pub(super) fn job(&self) -> Option<&JobKey> {
        self.marked.as_ref().map(|marked| &marked.job)
    }

    /// The line of the marked Job.
    pub(super) fn line(&self) -> Option<usize> {
        self.marked.as_ref().map(|marked| marked.row + HEADER)
    }

    /// Finds the marked Job in a new list. If it is gone, the Job in its place is marked.
    pub(super) fn follow(&mut self, jobs: Vec<JobKey>) {
        let row = self.marked.as_ref().map_or(0, |marked| {
            let same = jobs.iter().position(|job| *job == marked.job);
            same.unwrap_or(marked.row).min(jobs.len().saturating_sub(1))
        });
        self.marked = jobs.get(row).map(|job| Marked { job: job.clone(), row });
        self.jobs = jobs;
    }

    /// Adapts to the lines of the screen, and to those of the list. Returns the lines above the screen.
    pub(super) fn fit(&mut self, page: usize, lines: usize) -> usize {
        self.page = page.max(1);
        self.offset = self.offset.min(lines.saturating_sub(self.page));
        self.offset
    }

    /// Marks the Job above, or scrolls where there is none.
    pub(super) fn up(&mut self) {
        match self.visible_row() {
            Some(row) if row > 0 => self.mark(row - 1),
            _ => self.offset = self.offset.saturating_sub(1),
        }
    }

    /// Marks the Job below, or scrolls where there is none.
    pub(super) fn down(&mut self) {
        match self.visible_row() {
            Some(row) if row + 1 < self.jobs.len() => self.mark(row + 1),
            _ => self.offset += 1,
        }
    }

    /// Scrolls up by a page.
    pub(super) fn page_up(&mut self) {
        self.scroll(self.offset.saturating_sub(self.page));
    }

    /// Scrolls down by a page.
    pub(super) fn page_down(&mut self) {
        self.scroll(self.offset + self.page);
    }

    /// Scrolls to the top, and marks the first Job.
    pub(super) fn home(&mut self) {
        self.mark(0);
        self.offset = 0;
    }

    /// Scrolls to the end.
    pub(super) fn end(&mut self) {
        // `fit` limits it to what there is.
        self.scroll(usize::MAX / 2);
    }

    /// The row of the marked Job, if it is on the screen.
    fn visible_row(&self) -> Option<usize> {
        let row = self.marked.as_ref()?.row;
        (self.offset..self.offset + self.page).contains(&(row + HEADER)).then_some(row)
    }

    /// Scrolls so that this line is the first, and marks a Job that is on the screen then.
    fn scroll(&mut self, offset: usize) {
        let row = self.marked.as_ref().map_or(0, |marked| marked.row);
        let last = (offset + self.page).saturating_sub(HEADER + 1);
        let first = offset.saturating_sub(HEADER).min(last);
        self.mark(row.clamp(first, last).min(self.jobs.len().saturating_sub(1)));
        self.offset = offset;
    }

    /// Marks the Job of this row, and scrolls to it.
    fn mark(&mut self, row: usize) {
        let Some(job) = self.jobs.get(row) else { return };
        self.marked = Some(Marked { job: job.clone(), row });
        let line = row + HEADER;
        self.offset = self.offset.min(line).max((line + 1).saturating_sub(self.page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(names: impl IntoIterator<Item = usize>) -> Vec<JobKey> {
        names.into_iter().map(|name| ("n".to_owned(), format!("j{name:02}"))).collect()
    }

    /// A cursor in a list of 30 Jobs on a screen of 10 lines.
    fn cursor() -> Cursor {
        let mut cursor = Cursor::new();
        cursor.follow(jobs(0..30));
        cursor.fit(10, 31);
        cursor
    }

    /// The name of the marked Job, and the line of the screen that it is in.
    fn marked(cursor: &mut Cursor) -> (String, usize) {
        let offset = cursor.fit(10, 31);
        (cursor.job().map(|(_, name)| name.clone()).unwrap_or_default(), cursor.line().unwrap_or(0) - offset)
    }

    #[test]
    fn the_marked_job_stays_on_the_screen() {
        let mut cursor = cursor();
        assert_eq!(marked(&mut cursor), ("j00".to_owned(), 1));
        (0..20).for_each(|_| cursor.down());
        assert_eq!(marked(&mut cursor), ("j20".to_owned(), 9));
        cursor.page_down();
        assert_eq!(marked(&mut cursor), ("j21".to_owned(), 1));
        cursor.page_up();
        assert_eq!(marked(&mut cursor), ("j19".to_owned(), 9));
        cursor.end();
        assert_eq!(marked(&mut cursor), ("j29".to_owned(), 9));
        cursor.home();
        assert_eq!(marked(&mut cursor), ("j00".to_owned(), 1));
        cursor.up();
        assert_eq!(marked(&mut cursor), ("j00".to_owned(), 1));
    }

    #[test]
    fn the_marked_job_stays_marked_where_others_come_and_go() {
        let mut cursor = cursor();
        (0..3).for_each(|_| cursor.down());
        cursor.follow(jobs(1..30));
        assert_eq!((cursor.job(), cursor.line()), (jobs([3]).first(), Some(3)));
        cursor.follow(jobs([1, 2, 4]));
        assert_eq!((cursor.job(), cursor.line()), (jobs([4]).first(), Some(3)));
        cursor.follow(Vec::new());
        assert_eq!((cursor.job(), cursor.line()), (None, None));
        cursor.down();
        cursor.page_down();
    }

    #[test]
    fn the_smallest_screen_is_scrolled_by_lines() {
        let mut cursor = Cursor::new();
        cursor.follow(jobs(0..3));
        for line in 0..=3 {
            assert_eq!(cursor.fit(0, 4), line);
            cursor.down();
        }
        for line in (0..=3).rev() {
            assert_eq!(cursor.fit(0, 4), line);
            cursor.up();
        }
    }
}
