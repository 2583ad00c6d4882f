package raftlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/greylag/greylag/internal/codec"
)

// A backup is: "GLBK" form byte | length of the description, 4 bytes LE | its CRC-32C,
// 4 bytes LE | the description, JSON | a snapshot | the contents: frames like those of a
// snapshot, numbered from contentsFrame on, the last one empty.
const (
	backupMagic   = "GLBK"
	backupForm    = 1
	maxBackupHead = 64 << 10
	contentsFrame = 1 << 31
)

// ErrBackup reports that the input of Restore is not a whole backup.
var ErrBackup = errors.New("raftlog: backup is damaged or not a backup")

// ErrBackupVersion reports that another version of Greylag wrote the backup.
var ErrBackupVersion = errors.New("raftlog: unsupported backup format")

// BackupInfo describes a backup.
type BackupInfo struct {
	ClusterID string    // of the source cluster
	Index     uint64    // newest entry in it
	Term      uint64    // of that entry
	Size      int64     // bytes of the snapshot
	Taken     time.Time // by the clock of the member that wrote it
	History   bool      // the contents hold what the state no longer does
}

// Contents is the part of a backup next to the state.
type Contents struct {
	History bool
	Write   func(io.Writer) error // called after the state was written
}

// Backup writes this member's state and the contents. Any member can do it; ReadIndex first makes
// the state current. It keeps at most one frame in memory.
func (l *Log) Backup(ctx context.Context, w io.Writer, contents Contents) (BackupInfo, error) {
	var meta *raft.SnapshotMeta
	var rc io.ReadCloser
	err := l.await(ctx, func() error {
		future := l.raft.Snapshot()
		err := future.Error()
		if err == nil {
			meta, rc, err = future.Open()
		}
		return err
	})
	if err != nil {
		return BackupInfo{}, fmt.Errorf("backup: %w", err)
	}
	defer rc.Close()
	info := BackupInfo{l.self.Cluster, meta.Index, meta.Term, meta.Size, l.cfg.Clock(), contents.History}
	text, err := json.Marshal(info)
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	head := append([]byte(backupMagic), codec.FormByte(backupForm))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(text, castagnoli))
	if _, err = w.Write(append(head, text...)); err == nil {
		_, err = io.Copy(w, rc)
	}
	if err == nil {
		err = writeContents(w, contents.Write)
	}
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	return info, nil
}

// writeContents writes the last part of a backup.
func writeContents(w io.Writer, write func(io.Writer) error) error {
	frames := &frameWriter{w: w, number: contentsFrame}
	if write != nil {
		buffered := bufio.NewWriterSize(frames, frameBytes)
		if err := errors.Join(write(buffered), buffered.Flush()); err != nil {
			return err
		}
	}
	return frames.frame(nil)
}

// CheckBackup reads a backup to its end and checks every byte of it.
func CheckBackup(r io.Reader) (BackupInfo, error) {
	info, state, err := OpenBackup(r)
	if err != nil {
		return info, err
	}
	if _, err := io.Copy(io.Discard, state); err != nil {
		return info, err
	}
	contents := &frameReader{r: r, number: contentsFrame}
	if err := contents.drain(); err != nil {
		return info, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	var more [1]byte
	if n, err := io.ReadFull(r, more[:]); n > 0 || !errors.Is(err, io.EOF) {
		return info, fmt.Errorf("%w: data after its end", ErrBackup)
	}
	return info, nil
}

// restoreTimeout is how long each of the two stages of a restore waits for the leader's loop, which may wait for a slow disk.
// `gctld restore` serves no clients meanwhile.
const restoreTimeout = 2 * time.Minute

// Restore replaces the state of the whole cluster with a backup's, and then passes the
// contents to load, unless that is nil; the membership does not change. Only the leader can
// do it. The whole state is checked before anything changes; [CheckBackup] checks the
// contents as well. The caller decides whether to accept a backup of another cluster.
//
// The log continues at an index derived from the clock, in microseconds since 1970. It is
// higher than any index used between the backup and the restore, so that no index is
// used twice, provided that fewer than a million entries a second were committed.
func (l *Log) Restore(ctx context.Context, r io.Reader, load func(io.Reader) error) (BackupInfo, error) {
	info, err := readBackupInfo(r)
	if err != nil {
		return info, err
	}
	f, err := l.spool(r, info.Size)
	if err != nil {
		return info, fmt.Errorf("restore: %w", err)
	}
	if !l.IsLeader() {
		return info, errors.Join(l.orClosed(ErrNotLeader), f.Close())
	}
	index := max(info.Index, uint64(max(0, l.cfg.Clock().UnixMicro())))
	err = l.await(ctx, func() error {
		defer f.Close()
		meta := &raft.SnapshotMeta{Version: 1, Index: index, Term: info.Term, Size: info.Size}
		return l.raft.Restore(meta, f, restoreTimeout)
	})
	if errors.Is(err, raft.ErrNotLeader) {
		err = l.orClosed(ErrNotLeader)
	}
	if err != nil || load == nil {
		return info, err
	}
	contents := &frameReader{r: r, number: contentsFrame}
	if err := load(&backedUp{contents}); err != nil {
		return info, err
	}
	if err := contents.drain(); err != nil {
		return info, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return info, nil
}

// spool copies a snapshot to an unnamed file and checks it.
func (l *Log) spool(r io.Reader, size int64) (*os.File, error) {
	f, err := os.CreateTemp(l.cfg.Dir, "restore-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = io.CopyN(f, r, size)
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: cut off", ErrBackup)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		if _, err = checkSnapshot(f); err != nil {
			err = fmt.Errorf("%w: %w", ErrBackup, err)
		}
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readBackupInfo reads up to the snapshot.
func readBackupInfo(r io.Reader) (BackupInfo, error) {
	var info BackupInfo
	var head [13]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return info, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	switch form, err := codec.FormOf(head[4]); {
	case string(head[:4]) != backupMagic:
		return info, fmt.Errorf("%w: no backup header", ErrBackup)
	case errors.Is(err, codec.ErrEarlier):
		return info, fmt.Errorf("%w: it was %w", ErrBackupVersion, err)
	case err != nil:
		return info, fmt.Errorf("%w: %w", ErrBackup, err)
	case form > backupForm:
		return info, fmt.Errorf("%w: form %d; this version reads form %d, so update it first", ErrBackupVersion, form, backupForm)
	}
	size := binary.LittleEndian.Uint32(head[5:])
	if size > maxBackupHead {
		return info, fmt.Errorf("%w: description of %d bytes", ErrBackup, size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return info, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	if crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(head[9:]) {
		return info, fmt.Errorf("%w: CRC of the description is wrong", ErrBackup)
	}
	if err := json.Unmarshal(text, &info); err != nil || info.Size < 0 {
		return info, fmt.Errorf("%w: description", ErrBackup)
	}
	return info, nil
}
