package daemonmain

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// slackOf reads the slack of a thread; "" for one that has ended.
func slackOf(thread string) (string, error) {
	text, err := os.ReadFile("/proc/" + thread + "/timerslack_ns")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	return strings.TrimSpace(string(text)), err
}

// TestRelax checks that every thread has the slack, also later ones.
func TestRelax(t *testing.T) {
	Relax()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip("needs Linux: ", err)
	}
	for _, thread := range threads {
		got, err := slackOf(thread.Name())
		if errors.Is(err, os.ErrPermission) {
			t.Skip("needs root or CAP_SYS_NICE: ", err)
		}
		if err != nil || got != "" && got != "1000000" {
			t.Errorf("thread %s: %q ns, %v", thread.Name(), got, err)
		}
	}
	later := make(chan string)
	for range 2 * len(threads) { // more than before
		go func() {
			runtime.LockOSThread()
			got, err := slackOf(strconv.Itoa(syscall.Gettid()))
			later <- fmt.Sprintf("%s ns, %v", got, err)
			<-t.Context().Done()
		}()
	}
	for range 2 * len(threads) {
		if got := <-later; got != "1000000 ns, <nil>" {
			t.Errorf("a later thread: %s", got)
		}
	}
}
