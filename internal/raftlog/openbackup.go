package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// OpenBackup returns the description of a backup, and a reader of the state machine's data in it.
// The reader checks each piece before it returns it, and reports a truncated backup; errors wrap
// [ErrBackup] or are r's.
func OpenBackup(r io.Reader) (BackupInfo, io.Reader, error) {
	info, err := readBackupInfo(r)
	if err != nil {
		return info, nil, err
	}
	frames, _, err := openFrames(r)
	if err != nil {
		return info, nil, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return info, &backedUp{frames}, nil
}

// IsBackup reports whether data begins like a backup.
func IsBackup(data []byte) bool { return bytes.HasPrefix(data, []byte(backupMagic)) }

// backedUp is the state within a backup.
type backedUp struct{ frames *frameReader }

// Read reads the state machine's bytes.
func (b *backedUp) Read(p []byte) (int, error) {
	n, err := b.frames.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, errSnapshot) {
		err = fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return n, err
}
