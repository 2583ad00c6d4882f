package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine describes the machine of the figures.
func machine(out *paper) error {
	model, kernel := "unknown processor", "unknown kernel"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(text))
	}
	p50, p99, err := fsync()
	if err != nil {
		return err
	}
	out.note("%d cores, %s, Linux %s, %s; append of 4 KiB and fsync: median %s, 99 %% %s",
		runtime.NumCPU(), model, kernel, runtime.Version(), ms(p50), ms(p99))
	return nil
}

// fsync measures the disk under /tmp, where the clusters are.
func fsync() (p50, p99 time.Duration, err error) {
	dir, err := os.MkdirTemp("/tmp", "gl-fsync-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	block := make([]byte, 4096)
	var all []time.Duration
	for range 500 {
		begun := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, 0, err
		}
		all = append(all, time.Since(begun))
	}
	return quantile(all, 0.5), quantile(all, 0.99), nil
}

// cpu returns a process's processor time, user and kernel. It is counted in hundredths of a second:
// proc_pid_stat(5), utime and stime.
func cpu(pid int) time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold blanks
	const utime = 14 - 3
	var sum time.Duration
	if fields := strings.Fields(rest); len(fields) > utime+1 {
		for _, f := range fields[utime : utime+2] {
			ticks, _ := strconv.Atoi(f) // a number always
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// loadAverage returns the mean number of runnable processes in the last minute.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64) // a number always
	return load
}

// micros returns a time divided by n.
func micros(d time.Duration, n int) string {
	return fmt.Sprintf("%.0f µs", float64(d.Microseconds())/float64(max(n, 1)))
}
