package controller

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// A backup holds, besides the state, a sequence of pieces:
//
//	kind, 1 byte | number, 8 bytes LE | length, 4 bytes LE | data
//
// Numbers are sequence numbers; blobs have none, since their digest follows from the content.
const (
	pieceBlob byte = iota + 1
	pieceJob
	pieceCredits
	pieceAudit
	pieceLeases

	pieceHead = 13
	maxPiece  = 64 << 20
	loadBatch = 4 << 20 // records per write to the archive
)

var errPiece = errors.New("malformed record in the backup's contents")

// RestoredCommand returns the command that records a restore in the state.
func RestoredCommand(info raftlog.BackupInfo) []byte {
	return command.Encode(&command.Restored{Taken: cluster.InstantOf(info.Taken), History: info.History})
}

// Contents is the source of [SaveContents].
type Contents interface {
	Blob(d cluster.Digest) ([]byte, bool, error)
	Blobs(after []byte, most int) ([]archive.Blob, error)
	Between(from uint64, limit int) ([]archive.Record, error)
	Rows(j archive.Journal, from uint64, limit int) ([]archive.Row, error)
}

// SaveContents writes the script and environment of every job that has not ended, and those that a
// submission may name. With history it also writes all other blobs, the finished jobs and the
// journals. It returns how many blobs of active jobs the archive lacks. Memory: one page.
func SaveContents(w io.Writer, view *state.View, from Contents, history bool) (missing int, err error) {
	p := &pieceWriter{w: w}
	for d := range view.Blobs() {
		content, found, err := from.Blob(d)
		if err != nil {
			return missing, err
		}
		if found {
			p.put(pieceBlob, 0, content)
		} else if view.Needs(d) {
			missing++
		}
	}
	if history {
		p.blobs(from)
		p.jobs(from)
		p.rows(from, archive.CreditJournal, pieceCredits)
		p.rows(from, archive.AuditJournal, pieceAudit)
		p.rows(from, archive.LeaseJournal, pieceLeases)
	}
	return missing, p.err
}

// pieceWriter writes pieces. After the first error it writes nothing.
type pieceWriter struct {
	w   io.Writer
	err error
}

func (p *pieceWriter) put(kind byte, number uint64, data []byte) {
	head := binary.LittleEndian.AppendUint64([]byte{kind}, number)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(data)))
	for _, part := range [][]byte{head, data} {
		if p.err == nil {
			_, p.err = p.w.Write(part)
		}
	}
}

// pageSize is the number of records per read.
const pageSize = 500

func (p *pieceWriter) blobs(from Contents) {
	var after []byte
	for p.err == nil {
		page, err := from.Blobs(after, loadBatch)
		if p.err = errors.Join(p.err, err); len(page) == 0 {
			return
		}
		for _, b := range page {
			p.put(pieceBlob, 0, b.Content)
		}
		after = page[len(page)-1].Digest[:]
	}
}

func (p *pieceWriter) jobs(from Contents) {
	for next := uint64(1); p.err == nil; {
		page, err := from.Between(next, pageSize)
		if p.err = errors.Join(p.err, err); len(page) == 0 {
			return
		}
		for _, r := range page {
			p.put(pieceJob, r.Seq, r.Data)
			next = r.Seq + 1
		}
	}
}

func (p *pieceWriter) rows(from Contents, j archive.Journal, kind byte) {
	for next := uint64(1); p.err == nil; {
		page, err := from.Rows(j, next, pageSize)
		if p.err = errors.Join(p.err, err); len(page) == 0 {
			return
		}
		for _, r := range page {
			p.put(kind, r.Seq, r.Data)
			next = r.Seq + 1
		}
	}
}

// LoadContents stores in the archive what [SaveContents] wrote. It skips records and rows outside
// the gaps. Memory: one batch.
func LoadContents(r io.Reader, into ArchiveGaps) error {
	in := bufio.NewReader(r)
	l := loading{into: into}
	for {
		var head [pieceHead]byte
		switch _, err := io.ReadFull(in, head[:]); {
		case errors.Is(err, io.EOF):
			return l.flush()
		case err != nil:
			return fmt.Errorf("%w: %w", errPiece, err)
		}
		size := binary.LittleEndian.Uint32(head[9:])
		if size > maxPiece {
			return fmt.Errorf("%w: %d bytes", errPiece, size)
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(in, data); err != nil {
			return fmt.Errorf("%w: %w", errPiece, err)
		}
		if err := l.take(head[0], binary.LittleEndian.Uint64(head[1:]), data); err != nil {
			return err
		}
	}
}

// loading collects a batch for the archive.
type loading struct {
	into    ArchiveGaps
	records []archive.Record
	blobs   []archive.Blob
	rows    map[archive.Journal][]archive.Row
	bytes   int
}

func (l *loading) take(kind byte, number uint64, data []byte) error {
	switch kind {
	case pieceBlob:
		l.blobs = append(l.blobs, archive.BlobOf(data))
	case pieceJob:
		job, err := command.DecodeJob(data)
		if err != nil {
			return fmt.Errorf("%w: finished job %d: %w", errPiece, number, err)
		}
		l.records = append(l.records, recordOf(number, job, data))
	case pieceCredits, pieceAudit, pieceLeases:
		j := map[byte]archive.Journal{pieceCredits: archive.CreditJournal, pieceAudit: archive.AuditJournal, pieceLeases: archive.LeaseJournal}[kind]
		if l.rows == nil {
			l.rows = map[archive.Journal][]archive.Row{}
		}
		l.rows[j] = append(l.rows[j], archive.Row{Seq: number, Data: data})
	default:
		return fmt.Errorf("%w: kind %d: written by a newer version of Greylag", errPiece, kind)
	}
	if l.bytes += len(data) + pieceHead; l.bytes < loadBatch {
		return nil
	}
	return l.flush()
}

func (l *loading) flush() error {
	err := l.into.Fill(l.records, l.blobs)
	for j, rows := range l.rows {
		err = errors.Join(err, l.into.FillRows(j, rows))
	}
	*l = loading{into: l.into}
	return err
}
