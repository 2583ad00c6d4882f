package gctld

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/controller"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/version"
)

// withStorage opens a stopped controller's storage, isolated from all others, while f runs.
func withStorage(cfg config.Controller, log *slog.Logger, f func(*storage) error) error {
	trust, err := pki.LoadTrust(filepath.Join(cfg.PKIDir, pki.TrustFile))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := checkLastVersion(cfg); err != nil {
		return errors.Join(err, listener.Close())
	}
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		log = slog.New(slog.DiscardHandler) // raft's messages about a log without peers would be misleading
	}
	s, err := openStorage(cfg, trust.ClusterID(), alone{listener}, nil, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return errors.Join(f(s), s.close())
}

// alone is a stream without any connections.
type alone struct{ net.Listener }

// errAlone is the error of every dial.
var errAlone = errors.New("the controller is not running")

// Dial fails.
func (alone) Dial(string, time.Duration) (net.Conn, error) { return nil, errAlone }

// Init makes this controller the first and only one of a new cluster, whose CA is in
// the pki folder already. It is refused when the data folder holds any state.
func Init(cfg config.Controller, log *slog.Logger) error {
	err := withStorage(cfg, log, func(s *storage) error { return s.log.Bootstrap() })
	if errors.Is(err, raftlog.ErrHasState) {
		return fmt.Errorf("%s holds a cluster's state already: %w", cfg.DataDir, err)
	}
	return err
}

// Snapshot writes a backup of the state of a stopped controller that is the only one.
func Snapshot(ctx context.Context, cfg config.Controller, log *slog.Logger, to io.Writer, history bool) (raftlog.BackupInfo, error) {
	var info raftlog.BackupInfo
	if _, err := os.Stat(filepath.Join(cfg.DataDir, raftFolder)); err != nil {
		return info, fmt.Errorf("no controller's state: %w", err)
	}
	err := withStorage(cfg, log, func(s *storage) (err error) {
		if n := len(s.log.Status().Members); n > 1 {
			return fmt.Errorf("%w: it has %d", errNotAlone, n)
		}
		if err := ready(ctx, s.log); err != nil {
			return err
		}
		view := s.replica.View()
		info, err = s.log.Backup(ctx, to, raftlog.Contents{History: history, Write: func(w io.Writer) error {
			missing, err := s.save(w, view, history)
			if missing > 0 {
				log.Warn("the backup lacks scripts or environments of jobs: submit these jobs again", "missing", missing)
			}
			return err
		}})
		return err
	})
	return info, err
}

// errNotAlone is returned for a stopped member of several, which does not know what the others have
// committed.
var errNotAlone = errors.New("only a cluster of one controller can be backed up while it is stopped: run gctl cluster snapshot on one that runs")

// readyTime bounds how long a lone controller takes to replay its log.
const readyTime = time.Minute

// ready waits until a lone member leads, and so has everything in its state.
func ready(ctx context.Context, log *raftlog.Log) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		_, err := log.ReadIndex(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("read the log: %w", err)
		}
	}
}

// ErrOtherCluster is returned for a backup of another CA: tokens and certificates of the cluster
// name it.
var ErrOtherCluster = errors.New("the backup is of another cluster")

// ErrNotEmpty is returned for a data_dir that is not empty.
var ErrNotEmpty = errors.New("data_dir is not empty")

// restoreFolder is where in data_dir a restore is prepared. It is removed at the end of the
// restore; an interrupted restore leaves it, and the next one starts over.
const restoreFolder = "restore.tmp"

// Restore makes this controller the first and only one of a cluster whose state is a backup's. Its
// pki folder must be that of the cluster, and its data folder must hold nothing else. The backup is
// first checked to its last byte; then everything is prepared in a folder of its own and moved into
// place, so that an interrupted restore serves nothing. Jobs that ran when the backup was made, and
// have ended since, end as their nodes report.
func Restore(ctx context.Context, cfg config.Controller, log *slog.Logger, from io.ReadSeeker) (raftlog.BackupInfo, error) {
	info, err := checkRestore(cfg, from)
	if err != nil {
		return info, err
	}
	if err := pki.MakePrivate(cfg.DataDir); err != nil {
		return info, err
	}
	aside := cfg
	aside.DataDir = filepath.Join(cfg.DataDir, restoreFolder)
	if err := os.RemoveAll(aside.DataDir); err != nil {
		return info, err
	}
	if err := withStorage(aside, log, func(s *storage) error { return s.restore(ctx, from, info) }); err != nil {
		return info, errors.Join(err, os.RemoveAll(aside.DataDir))
	}
	for _, name := range []string{archiveFolder, raftFolder} { // without a log there is no member
		if err := os.Rename(filepath.Join(aside.DataDir, name), filepath.Join(cfg.DataDir, name)); err != nil {
			return info, fmt.Errorf("the restore is not complete, empty %s and repeat it: %w", cfg.DataDir, err)
		}
	}
	return info, os.RemoveAll(aside.DataDir)
}

// checkRestore refuses a backup that is damaged or of another cluster, and a data folder
// that holds anything.
func checkRestore(cfg config.Controller, from io.ReadSeeker) (info raftlog.BackupInfo, err error) {
	entries, err := os.ReadDir(cfg.DataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	for _, e := range entries {
		if !survivesRestore(cfg, e.Name()) {
			return info, fmt.Errorf("%w: %s holds %s; move it away first", ErrNotEmpty, cfg.DataDir, e.Name())
		}
	}
	trust, err := pki.LoadTrust(filepath.Join(cfg.PKIDir, pki.TrustFile))
	if errors.Is(err, fs.ErrNotExist) {
		return info, fmt.Errorf("%w; copy the cluster's pki_dir to %s first", err, cfg.PKIDir)
	}
	if err != nil {
		return info, err
	}
	if info, err = raftlog.CheckBackup(from); err != nil {
		return info, err
	}
	if info.ClusterID != trust.ClusterID() {
		return info, fmt.Errorf("%w: %s, not %s, whose CA is in %s", ErrOtherCluster, info.ClusterID, trust.ClusterID(), cfg.PKIDir)
	}
	if err := checkState(from); err != nil {
		return info, err
	}
	_, err = from.Seek(0, io.SeekStart)
	return info, err
}

// checkState refuses a backup whose state this program cannot read. Raft would panic on it.
func checkState(from io.ReadSeeker) error {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, saved, err := raftlog.OpenBackup(from)
	if err != nil {
		return err
	}
	if _, err := state.Decode(saved); err != nil {
		return fmt.Errorf("gctld %s cannot read the state in this backup; restore it with the version that wrote it: %w", version.Version, err)
	}
	return nil
}

// survivesRestore reports whether a restore keeps an entry of the data folder. pki_dir is there by
// default.
func survivesRestore(cfg config.Controller, name string) bool {
	if name == restoreFolder || name == "lost+found" || name == controllersFile || name == versionFile {
		return true
	}
	inside, err := filepath.Rel(filepath.Join(cfg.DataDir, name), cfg.PKIDir)
	return err == nil && filepath.IsLocal(inside)
}

// restore loads a backup into empty storage and records that in the state.
func (s *storage) restore(ctx context.Context, from io.Reader, info raftlog.BackupInfo) error {
	if err := s.log.Bootstrap(); err != nil {
		return err
	}
	if err := ready(ctx, s.log); err != nil {
		return err
	}
	load := func(r io.Reader) error { return controller.LoadContents(r, s.archive) }
	if _, err := s.log.Restore(ctx, from, load); err != nil {
		return err
	}
	if _, _, err := s.log.Propose(ctx, controller.RestoredCommand(info)); err != nil {
		return err
	}
	return errors.Join(s.archive.Sync(), s.log.SnapshotNow(ctx))
}

// Recover makes a stopped controller, whose peers are lost permanently, the only member of the
// cluster, so that it can lead again.
func Recover(cfg config.Controller, log *slog.Logger) (raftlog.Recovery, error) {
	trust, err := pki.LoadTrust(filepath.Join(cfg.PKIDir, pki.TrustFile))
	if err != nil {
		return raftlog.Recovery{}, err
	}
	if err := checkLastVersion(cfg); err != nil {
		return raftlog.Recovery{}, err
	}
	store, err := archive.Open(filepath.Join(cfg.DataDir, archiveFolder), archive.Options{})
	if err != nil {
		return raftlog.Recovery{}, err
	}
	options, err := logConfig(cfg, trust.ClusterID(), nil, log)
	var report raftlog.Recovery
	if err == nil {
		report, err = raftlog.Recover(options, controller.NewReplica(store, log), nil)
	}
	return report, errors.Join(err, store.Close())
}

// Recoverable describes, in lines for an administrator, what Recover would keep of a stopped
// controller, and which members it would remove. It changes nothing.
func Recoverable(cfg config.Controller, log *slog.Logger) (string, error) {
	trust, err := pki.LoadTrust(filepath.Join(cfg.PKIDir, pki.TrustFile))
	if err != nil {
		return "", err
	}
	options, err := logConfig(cfg, trust.ClusterID(), nil, log)
	if err != nil {
		return "", err
	}
	is, self, err := raftlog.Recoverable(options)
	if err != nil {
		return "", err
	}
	from := "no snapshot"
	if is.Snapshot != 0 {
		from = fmt.Sprintf("the snapshot up to entry %d", is.Snapshot)
	}
	text := fmt.Sprintf("keeps:   everything up to entry %d, of term %d: %s, entries after it: %d\n", is.LastIndex, is.LastTerm, from, is.LastIndex-is.Snapshot)
	if is.DamagedFrom != 0 {
		text += fmt.Sprintf("loses:   entries %d to %d, which are damaged\n", is.DamagedFrom, is.DamagedTo)
	}
	text += fmt.Sprintf("stays:   %s, as the only member\n", self)
	for _, m := range is.Members {
		if m.ID != self {
			text += fmt.Sprintf("removes: %s at %s\n", m.ID, m.Addr)
		}
	}
	return text, nil
}
