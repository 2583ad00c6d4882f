package agent

import (
	"path/filepath"
	"slices"
	"strings"

	tasks "github.com/greylag/greylag/internal/runtime"
)

// addMounts decides which parts of the host's file system a task sees.
//
// Every task has its own /tmp and /var/tmp. If its working directory or output lies below one of
// the host's, that directory is mounted there, so that a job submitted from /tmp/x works as
// expected. If it is /tmp itself, the task has the host's.
//
// A task with an image sees the user's home, its working directory, the directories of its output and its
// checkpoints, and its scratch space at the same paths, and the mounts that the job requests.
func (a *Agent) addMounts(spec *tasks.Spec, home string, l *launch) {
	if !a.cfg.Isolated {
		return
	}
	image, tmpDir := l.spec.GetImage() != "", l.tmpDir
	spec.PrivateTmp = true
	folders := append([]string{spec.WorkDir, folder(spec.Stdin), folder(spec.Stdout), folder(spec.Stderr)}, checkpointDirs(l.spec, l.node)...)
	if image {
		folders = append(folders, home)
	}
	var shown []tasks.Mount
	if tmpDir != "" && (image || temporary(tmpDir)) {
		shown = append(shown, tasks.Mount{Source: tmpDir, Target: tmpDir})
	}
	for _, f := range l.folders {
		shown = append(shown, tasks.Mount{Source: f.Source, Target: f.Target})
	}
	for _, m := range l.spec.GetMounts() {
		shown = append(shown, tasks.Mount{Source: m.GetSource(), Target: filepath.Clean(m.GetTarget()), ReadOnly: m.GetReadOnly()})
	}
	for _, dir := range folders {
		target := filepath.Clean(dir)
		switch {
		case target == "/tmp" || target == "/var/tmp":
			spec.PrivateTmp = spec.PrivateTmp && image
		case temporary(target), image && mayShow(target):
			// The source stays as the user wrote it: after a link, ".." means another directory.
			shown = append(shown, tasks.Mount{Source: dir, Target: target, Optional: true})
		}
	}
	if !spec.PrivateTmp && !image {
		return
	}
	// Outer directories come before those inside them.
	slices.SortStableFunc(shown, func(a, b tasks.Mount) int { return strings.Compare(a.Target, b.Target) })
	spec.Mounts = append(spec.Mounts, slices.CompactFunc(shown, func(a, b tasks.Mount) bool { return a.Target == b.Target })...)
}

// folder returns the directory of a file without shortening the path: see shape.
func folder(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

// temporary reports whether dir is in a directory that is private to each task.
func temporary(dir string) bool {
	for _, root := range []string{"/tmp", "/var/tmp"} {
		if dir == root || strings.HasPrefix(dir, root+"/") {
			return true
		}
	}
	return false
}

// mayShow reports whether a directory of the host may hide one of an image. System directories stay
// the image's own.
func mayShow(dir string) bool {
	if !strings.HasPrefix(dir, "/") {
		return false
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	switch first {
	case "", "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sbin", "sys", "usr":
		return false
	case "root":
		return true
	}
	return rest != "" || first != "var"
}
