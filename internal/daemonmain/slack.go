package daemonmain

import (
	"os"
	"strconv"
	"time"
)

// slack is how late the kernel may wake a daemon's threads.
const slack = time.Millisecond

// Relax sets that timer slack for all threads of this process; the kernel's default is 50 µs. Go's
// thread monitor sleeps for 20 µs at a time while calls and disk syncs are under way, which took
// an eighth of a controller's processor time. Its work can wait a millisecond. New threads and
// child processes inherit it.
//
// It needs root or CAP_SYS_NICE; without them it changes only the caller's thread.
func Relax() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return // not Linux: only processor time is lost
	}
	text := strconv.AppendInt(nil, slack.Nanoseconds(), 10)
	for _, thread := range threads {
		_ = os.WriteFile("/proc/"+thread.Name()+"/timerslack_ns", text, 0) // the thread may have ended, or belong to another user
	}
}
