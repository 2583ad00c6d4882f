package raftlog

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/greylag/greylag/internal/codec"
)

// directoryForm is the form that identity.Form records.
const directoryForm = 1

// maxName bounds the bytes of a member id and of a cluster id.
const maxName = 64

// Names inside Config.Dir.
const (
	identityFile   = "identity.json"
	quarantineFile = "quarantine.json"
	databaseFile   = "raft.db"
	snapshotDir    = "snapshots"
)

// ErrIdentity is returned by Open when Dir belongs to another member or cluster, or holds a log
// without an identity.
var ErrIdentity = errors.New("raftlog: data directory belongs to another member")

// identity is the owner of a data directory. The incarnation is drawn for every new directory and
// is part of the member's address in the committed configuration ("host:port#incarnation"), so
// every peer asks for exactly this directory. A member whose directory was lost has another
// incarnation: it gets no vote request and no entry until it is added as a new member.
type identity struct {
	// Form is the form of the directory's files. Earlier development versions stored none.
	Form        uint8
	Cluster     string
	ID          string
	Incarnation uint64
	// HasLog records that raft.db exists and must never be created again (openlog.go).
	HasLog bool
	// OtherVoters records whether the cluster had other voters when it last changed. It
	// decides what happens to the data when the log is lost.
	OtherVoters bool
	// MemberAt is the index of the newest committed configuration seen that includes this member;
	// 0: none. A later one without it means that it was removed.
	MemberAt uint64
}

// MintID returns a new, unique member ID.
func MintID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return "ctl-" + hex.EncodeToString(b[:])
}

func mintIncarnation() uint64 {
	for {
		var b [8]byte
		rand.Read(b[:])
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 { // 0 means "any" in a handshake
			return n
		}
	}
}

// loadIdentity returns the identity of cfg.Dir; an empty directory becomes cfg.ID's, or a new
// member's with a generated ID.
func loadIdentity(cfg Config) (identity, error) {
	path := filepath.Join(cfg.Dir, identityFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createIdentity(cfg, path)
	case err != nil:
		return identity{}, fmt.Errorf("raftlog: read identity: %w", err)
	}
	var id identity
	if err := json.Unmarshal(text, &id); err != nil || checkID(id.ID) != nil || id.Incarnation == 0 {
		return identity{}, fmt.Errorf("%w: %s is not readable: restore it, or empty the directory and add the member again", ErrIdentity, path)
	}
	if id.Form != directoryForm {
		return identity{}, fmt.Errorf("raftlog: %s was %w", cfg.Dir, codec.ErrEarlier)
	}
	if id.Cluster != cfg.ClusterID {
		return identity{}, fmt.Errorf("%w: %s is of cluster %q, not %q", ErrIdentity, cfg.Dir, id.Cluster, cfg.ClusterID)
	}
	if cfg.ID != "" && cfg.ID != id.ID {
		return identity{}, fmt.Errorf("%w: %s is of member %q, not %q", ErrIdentity, cfg.Dir, id.ID, cfg.ID)
	}
	return id, nil
}

func createIdentity(cfg Config, path string) (identity, error) {
	_, err := os.Stat(filepath.Join(cfg.Dir, databaseFile))
	kept, _ := os.ReadDir(filepath.Join(cfg.Dir, snapshotDir))
	if err == nil || len(kept) > 0 {
		return identity{}, fmt.Errorf("%w: %s holds a log or snapshots but no %s: restore it, or empty the directory and add the member again", ErrIdentity, cfg.Dir, identityFile)
	}
	id := identity{Form: directoryForm, Cluster: cfg.ClusterID, ID: cfg.ID, Incarnation: mintIncarnation()}
	if id.ID == "" {
		id.ID = MintID()
	}
	if err := writeJSON(path, id); err != nil {
		return identity{}, fmt.Errorf("raftlog: write identity: %w", err)
	}
	return id, nil
}

// quarantine records why a data directory must not be used any more. It is only a mark, written by
// the process that found the damage and must end at once; the next Open sets the data aside.
type quarantine struct {
	Reason string
	At     time.Time
}

func (q quarantine) write(dir string) error {
	return writeJSON(filepath.Join(dir, quarantineFile), q)
}

// setAside moves the data of a marked directory to quarantine-<time>/ in it, and returns that
// folder, or "" if there was no mark. The mark moves last, so the next call completes a move that a
// crash interrupted.
func setAside(dir string) (string, error) {
	mark := filepath.Join(dir, quarantineFile)
	text, err := os.ReadFile(mark)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("raftlog: read quarantine mark: %w", err)
	}
	var q quarantine
	if err := json.Unmarshal(text, &q); err != nil {
		return "", fmt.Errorf("raftlog: %s: %w", mark, err)
	}
	aside := filepath.Join(dir, "quarantine-"+q.At.UTC().Format("20060102T150405.000"))
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return "", fmt.Errorf("raftlog: quarantine: %w", err)
	}
	for _, name := range []string{databaseFile, snapshotDir, identityFile, quarantineFile} {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("raftlog: quarantine: %w", err)
		}
	}
	return aside, syncDir(dir)
}

// writeJSON writes a small file atomically and durably.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
