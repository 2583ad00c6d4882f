//go:build linux

package ginit

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// measure adds the counters of the task's version 2 control group at dir. systemd removes the group
// as soon as ginit ends, so they cannot be read later. Values that this kernel does not count stay
// unchanged.
func (r *Record) measure(dir string) {
	if dir == "" {
		return
	}
	if kills, ok := counted(filepath.Join(dir, "memory.events"), "oom_kill"); ok {
		r.OOMKills, r.Measured = kills, true
	}
	if peak, ok := counted(filepath.Join(dir, "memory.peak"), ""); ok { // since Linux 5.19
		r.MaxRSS = peak
	}
	if microseconds, ok := counted(filepath.Join(dir, "cpu.stat"), "usage_usec"); ok {
		r.CPU = int64(microseconds) * 1000
		user, _ := counted(filepath.Join(dir, "cpu.stat"), "user_usec") // every kernel writes both
		r.User = int64(user) * 1000
	}
}

// counted returns the number after a key in a file of lines "key number"; with an empty key the
// only number of the file.
func counted(path, key string) (uint64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if key != "" && (len(fields) != 2 || fields[0] != key) || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseUint(fields[len(fields)-1], 10, 64)
		return n, err == nil
	}
	return 0, false
}
