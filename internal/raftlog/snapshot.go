package raftlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/greylag/greylag/internal/codec"
)

// A snapshot is a sequence of frames:
//
//	frame: length, 4 bytes LE | CRC-32C of number and payload, 4 bytes LE | payload
//	first: "GLSN" form byte, 0 | digest version, 2 bytes LE | index | digest of the state, 8 bytes LE each
//	then:  the FSM's data, in pieces of up to 256 KiB
//	last:  length 0
//
// The number of a frame, counted from 0, is in its CRC, so that frames cannot be lost or swapped.
// The library checks a CRC-64 of the file on disk, but computes it on the receiver of a snapshot;
// these CRCs cover the way from the state of one member to that of another.
const (
	snapshotMagic = "GLSN"
	snapshotForm  = 1
	frameBytes    = 256 << 10
)

var errSnapshot = errors.New("snapshot is damaged")

type snapshotHead struct {
	Index  uint64 // of the newest entry in the state
	Digest uint64
	// DigestVersion is that of the program that wrote the snapshot. A program with another version
	// reads it, and computes another digest of the same state.
	DigestVersion uint16
}

func (h snapshotHead) encode() []byte {
	buf := append([]byte(snapshotMagic), codec.FormByte(snapshotForm), 0)
	buf = binary.LittleEndian.AppendUint16(buf, h.DigestVersion)
	buf = binary.LittleEndian.AppendUint64(buf, h.Index)
	return binary.LittleEndian.AppendUint64(buf, h.Digest)
}

func decodeHead(b []byte) (snapshotHead, error) {
	if len(b) != 24 || string(b[:4]) != snapshotMagic {
		return snapshotHead{}, fmt.Errorf("%w: not a snapshot", errSnapshot)
	}
	switch form, err := codec.FormOf(b[4]); {
	case errors.Is(err, codec.ErrEarlier):
		return snapshotHead{}, fmt.Errorf("the snapshot was %w", err)
	case err != nil:
		return snapshotHead{}, fmt.Errorf("%w: %w", errSnapshot, err)
	case form > snapshotForm:
		return snapshotHead{}, fmt.Errorf("snapshot format %d: %w", form, errUnsupported)
	}
	return snapshotHead{
		Index: binary.LittleEndian.Uint64(b[8:]), Digest: binary.LittleEndian.Uint64(b[16:]),
		DigestVersion: binary.LittleEndian.Uint16(b[6:]),
	}, nil
}

func frameCRC(number uint32, payload []byte) uint32 {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], number)
	return crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, payload)
}

// frameWriter divides its input into frames.
type frameWriter struct {
	w      io.Writer
	number uint32
}

func (f *frameWriter) frame(payload []byte) error {
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(head[4:], frameCRC(f.number, payload))
	f.number++
	if _, err := f.w.Write(head[:]); err != nil {
		return err
	}
	_, err := f.w.Write(payload)
	return err
}

// Write writes p as frames.
func (f *frameWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		piece := p[:min(len(p), frameBytes)]
		if err := f.frame(piece); err != nil {
			return n, err
		}
		n += len(piece)
		p = p[len(piece):]
	}
	return n, nil
}

// frameReader returns what a frameWriter was given, and errSnapshot at the first wrong byte.
type frameReader struct {
	r      io.Reader
	number uint32
	rest   []byte
	buf    []byte
	ended  bool
}

// openFrames reads the head of a snapshot.
func openFrames(r io.Reader) (*frameReader, snapshotHead, error) {
	f := &frameReader{r: r}
	if err := f.next(); err != nil {
		return f, snapshotHead{}, err
	}
	head, err := decodeHead(f.rest)
	f.rest = nil
	return f, head, err
}

// next reads one frame into rest.
func (f *frameReader) next() error {
	var head [8]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return fmt.Errorf("%w: truncated in frame %d: %w", errSnapshot, f.number, err)
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > frameBytes {
		return fmt.Errorf("%w: frame %d of %d bytes", errSnapshot, f.number, size)
	}
	if f.buf == nil {
		f.buf = make([]byte, frameBytes)
	}
	f.rest = f.buf[:size]
	if _, err := io.ReadFull(f.r, f.rest); err != nil {
		return fmt.Errorf("%w: truncated in frame %d: %w", errSnapshot, f.number, err)
	}
	if frameCRC(f.number, f.rest) != binary.LittleEndian.Uint32(head[4:]) {
		return fmt.Errorf("%w: CRC of frame %d is wrong", errSnapshot, f.number)
	}
	f.number++
	f.ended = size == 0
	return nil
}

// Read reads the FSM's bytes.
func (f *frameReader) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.ended {
			return 0, io.EOF
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// drain reads and checks what the FSM left unread.
func (f *frameReader) drain() error {
	_, err := io.Copy(io.Discard, f)
	return err
}

// checkSnapshot reads a whole snapshot and checks every frame.
func checkSnapshot(r io.Reader) (snapshotHead, error) {
	f, head, err := openFrames(r)
	if err != nil {
		return head, err
	}
	return head, f.drain()
}

// capture is a captured state on its way to disk.
type capture struct {
	writer SnapshotWriter
	head   snapshotHead
}

// Persist writes the snapshot to raft's file; raft closes or cancels it.
func (c *capture) Persist(sink raft.SnapshotSink) error {
	frames := &frameWriter{w: sink}
	if err := frames.frame(c.head.encode()); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(frames, frameBytes)
	if _, err := c.writer.WriteTo(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return frames.frame(nil)
}

// Release frees the captured state.
func (c *capture) Release() { c.writer.Release() }

// snapshots is raft's file store, which also checks every frame before a byte reaches the state
// machine, and remembers which one it opened last.
type snapshots struct {
	*raft.FileSnapshotStore
	store  *logStore // records each snapshot; set by openLog
	mu     sync.Mutex
	last   configuration
	index  uint64       // of the snapshot opened last
	broken error        // the last failure to restore
	taken  atomic.Int64 // when the newest was taken or received, in ms since 1970; 0: none
}

func openSnapshots(cfg Config) (*snapshots, error) {
	s, err := raft.NewFileSnapshotStoreWithLogger(cfg.Dir, cfg.SnapshotRetain, logAdapter{cfg.Logger}.named("snapshot"))
	if err != nil {
		return nil, fmt.Errorf("raftlog: open snapshots: %w", err)
	}
	all := &snapshots{FileSnapshotStore: s}
	all.taken.Store(snapshotTime(all.newest()))
	return all, nil
}

// Create begins a snapshot, whether this member takes it or a leader sends it.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, c, configIndex, trans)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, store: s.store, index: index, done: func() { s.taken.Store(time.Now().UnixMilli()) }}, nil
}

// newest returns the head of the newest snapshot, whether it is whole or not; a zero one if none
// exists.
func (s *snapshots) newest() (newest raft.SnapshotMeta) {
	list, _ := s.List() // on an error, as if there were none
	for _, meta := range list {
		if meta.Index > newest.Index {
			newest = *meta
		}
	}
	return newest
}

// Open checks a snapshot and returns it.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	_, rc, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return nil, nil, s.failed(fmt.Errorf("%s: %w: %w", id, errSnapshot, err))
	}
	_, err = checkSnapshot(rc)
	rc.Close()
	if err != nil {
		return nil, nil, s.failed(fmt.Errorf("%s: %w", id, err))
	}
	meta, rc, err := s.FileSnapshotStore.Open(id)
	if err == nil {
		s.mu.Lock()
		s.last = configuration{meta.ConfigurationIndex, meta.Configuration.Clone().Servers}
		s.index = meta.Index
		s.mu.Unlock()
	}
	return meta, rc, err
}

// failed remembers and returns err.
func (s *snapshots) failed(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
	return err
}

// lastFailure is the last failure to restore.
func (s *snapshots) lastFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// opened returns the configuration of the snapshot opened last, and its index: the log continues
// after it. (After the restore of a backup, that is not the index in its head.)
func (s *snapshots) opened() (configuration, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.index
}

// floor is the index of the oldest snapshot kept; entries after it stay in the log.
func (s *snapshots) floor() uint64 {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return 0
	}
	floor := list[0].Index
	for _, meta := range list {
		floor = min(floor, meta.Index)
	}
	return floor
}

// SnapshotNow takes a snapshot and drops the entries that are no longer needed.
func (l *Log) SnapshotNow(ctx context.Context) error {
	return l.await(ctx, func() error {
		err := l.raft.Snapshot().Error()
		if errors.Is(err, raft.ErrNothingNewToSnapshot) {
			return nil
		}
		return err
	})
}
