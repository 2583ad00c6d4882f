//go:build linux

package ginit

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// measure adds what the task's control group of version 2 has counted, seen at dir.
// systemd removes the group as soon as ginit is gone, so nobody can read it later.
// What this kernel does not count is left as it is.
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
		user, _ := counted(filepath.Join(dir, "cpu.stat"), "user_usec") // stands beside it in every kernel
		r.User = int64(user) * 1000
	}
}

// counted reads the number after a key in a file of lines "key number", or with an
// empty key the file's only number.
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
