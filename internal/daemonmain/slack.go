package daemonmain

import (
	"os"
	"strconv"
	"time"
)

// slack is how much later than they ask the kernel may wake a daemon's threads.
const slack = time.Millisecond

// Relax gives all threads of this process that slack; the kernel's is 50 µs. Go's
// monitor of its threads sleeps for 20 µs at a time while calls and syncs of the disk
// come and go: it took an eighth of a controller's processor time. What it does may
// well come a millisecond later. Threads to come, and child processes, inherit it.
//
// It needs root or CAP_SYS_NICE; without, it changes nothing but the caller's thread.
func Relax() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return // not Linux: nothing is lost but processor time
	}
	text := strconv.AppendInt(nil, slack.Nanoseconds(), 10)
	for _, thread := range threads {
		_ = os.WriteFile("/proc/"+thread.Name()+"/timerslack_ns", text, 0) // it may have ended, or not be ours to set
	}
}
