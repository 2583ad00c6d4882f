package gctld

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/raftlog"
)

// Files in the data folder in addition to those of the log and the archive.
const (
	raftFolder    = "raft"
	archiveFolder = "archive"
	// memberFile holds the member ID that this controller received when it joined.
	memberFile = "member-id"
	// controllersFile holds, one per line, the controllers that it can ask to be added.
	controllersFile = "controllers"
)

// logConfig returns the log's part of the configuration file.
func logConfig(cfg config.Controller, clusterID string, stream raftlog.Stream, log *slog.Logger) (raftlog.Config, error) {
	id, err := readLines(filepath.Join(cfg.DataDir, memberFile))
	if err != nil {
		return raftlog.Config{}, err
	}
	out := raftlog.Config{
		ID: strings.Join(id, ""), Addr: cfg.Advertise, ClusterID: clusterID,
		Dir: filepath.Join(cfg.DataDir, raftFolder), Stream: stream,
		Profile: raftlog.FastLAN(), Clock: clock, Wall: clock, Logger: log,
		SnapshotThreshold: uint64(cfg.Raft.SnapshotThreshold), SnapshotInterval: cfg.Raft.SnapshotInterval,
		SnapshotRetain: cfg.Raft.SnapshotsKept, TrailingLogs: uint64(cfg.Raft.TrailingLogs),
		ReserveBytes: int64(cfg.Raft.Reserve),
	}
	if cfg.Raft.Profile == "wan" {
		out.Profile = raftlog.WAN()
	}
	if out.ReserveBytes == 0 {
		out.ReserveBytes = -1 // 0 in the file means none
	}
	return out, nil
}

// readLines reads a small text file; a missing one has no lines.
func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return strings.Fields(string(text)), nil
}
