/* worker/exit_code.h - what a supervisor or a script can tell from the end of a process (design.md section 9). */
#ifndef WORKER_EXIT_CODE_H
#define WORKER_EXIT_CODE_H

enum exit_code {
    EXIT_CODE_DONE = 0,            /* every line has its verdict */
    EXIT_CODE_USAGE = 1,           /* usage or settings */
    EXIT_CODE_CANNOT_START = 2,    /* model, device or queue; the message says what to do */
    EXIT_CODE_FENCED = 3,          /* another owner took over */
    EXIT_CODE_WATCHDOG = 4,
    EXIT_CODE_DEVICE = 5,
    EXIT_CODE_UNSOUND = 6,         /* audit: an input is lost, doubled or not done; a mark says more than is there */
    EXIT_CODE_STOPPED = 75         /* stopped early with all progress saved: run again to go on */
};

#endif
