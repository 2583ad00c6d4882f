package raftlog

import (
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
)

// A backup is: "GLBK" version | length of the description, 4 bytes LE | its CRC-32C,
// 4 bytes LE | the description, JSON | a snapshot.
const (
	backupMagic   = "GLBK"
	backupVersion = 1
	maxBackupHead = 64 << 10
)

// ErrBackup: what was given to Restore is not a whole backup.
var ErrBackup = errors.New("raftlog: backup is damaged or not a backup")

// BackupInfo describes a backup.
type BackupInfo struct {
	ClusterID string    // of the cluster it was taken from
	Index     uint64    // newest entry in it
	Term      uint64    // of that entry
	Size      int64     // bytes of the snapshot
	Taken     time.Time // by the clock of the member that took it
}

// Backup writes the state as this member has it, with everything needed to restore
// it into a new cluster. Any member can do it; ReadIndex first makes it current.
func (l *Log) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
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
	info := BackupInfo{l.self.Cluster, meta.Index, meta.Term, meta.Size, l.cfg.Clock()}
	text, err := json.Marshal(info)
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	head := append([]byte(backupMagic), backupVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(text, castagnoli))
	if _, err = w.Write(append(head, text...)); err == nil {
		_, err = io.Copy(w, rc)
	}
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	return info, nil
}

// Describe reads what a backup says of itself. Its errors wrap ErrBackup or are r's.
func Describe(r io.Reader) (BackupInfo, error) { return readBackupInfo(r) }

// Restore replaces the state of the whole cluster by a backup's; the membership
// stays. Only the leader can do it. The backup is checked to its last byte before
// anything changes. The caller decides whether a backup of another cluster will do.
func (l *Log) Restore(ctx context.Context, r io.Reader) (BackupInfo, error) {
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
	err = l.await(ctx, func() error {
		defer f.Close()
		meta := &raft.SnapshotMeta{Version: 1, Index: info.Index, Term: info.Term, Size: info.Size}
		return l.raft.Restore(meta, f, enqueueTimeout)
	})
	if errors.Is(err, raft.ErrNotLeader) {
		err = l.orClosed(ErrNotLeader)
	}
	return info, err
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

// readBackupInfo reads up to where the snapshot begins.
func readBackupInfo(r io.Reader) (BackupInfo, error) {
	var info BackupInfo
	var head [13]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return info, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	if string(head[:4]) != backupMagic || head[4] != backupVersion {
		return info, ErrBackup
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
