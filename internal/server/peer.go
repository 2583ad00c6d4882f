package server

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/certs"
	"github.com/greylag/greylag/pkg/cluster"
)

// peerService implements PeerService, for other controllers.
type peerService struct {
	*Server
	*certs.Service
}

// maxRecords bounds one answer to a peer, in items and in bytes.
const maxRecords, maxBlobs, maxPeerBytes = 4096, 256, 8 << 20

// GetReadIndex confirms leadership and returns the log index a read must wait for.
func (s *peerService) GetReadIndex(ctx context.Context, _ *greylagv1.GetReadIndexRequest) (*greylagv1.GetReadIndexResponse, error) {
	if !s.views.Leads() {
		return nil, raftlog.ErrNotLeader
	}
	index, err := s.cfg.Log.ReadIndex(ctx)
	return &greylagv1.GetReadIndexResponse{Index: index}, err
}

// ListFinishedJobs returns archived jobs by sequence number, without a gap.
func (s *peerService) ListFinishedJobs(_ context.Context, p *greylagv1.ListFinishedJobsRequest) (*greylagv1.ListFinishedJobsResponse, error) {
	records, err := s.cfg.Archive.Between(p.GetFrom(), min(max(int(p.GetLimit()), 0), maxRecords))
	if err != nil {
		return nil, err
	}
	response := &greylagv1.ListFinishedJobsResponse{Next: p.GetFrom()}
	size := 0
	for _, r := range records {
		size += len(r.Data)
		if r.Seq != response.Next || size > maxPeerBytes && len(response.Records) > 0 {
			break // the entries after a gap in this archive are requested by number
		}
		response.Records = append(response.Records, r.Data)
		response.Next = r.Seq + 1
	}
	return response, nil
}

// GetBlobs returns scripts and environments by digest. Beyond 8 MiB they are returned empty, to be
// requested again.
func (s *peerService) GetBlobs(_ context.Context, p *greylagv1.GetBlobsRequest) (*greylagv1.GetBlobsResponse, error) {
	if len(p.GetDigests()) > maxBlobs {
		return nil, call.Refuse(command.InvalidArgument, "", "%d digests: at most %d", len(p.GetDigests()), maxBlobs)
	}
	response := &greylagv1.GetBlobsResponse{Contents: make([][]byte, len(p.GetDigests()))}
	size := 0
	for i, digest := range p.GetDigests() {
		var d cluster.Digest
		if len(digest) != len(d) {
			return nil, call.Refuse(command.InvalidArgument, "", "a digest has %d bytes", len(d))
		}
		copy(d[:], digest)
		content, _, err := s.cfg.Archive.Blob(d)
		if err != nil {
			return nil, err
		}
		if size += len(content); size > maxPeerBytes && i > 0 {
			break
		}
		response.Contents[i] = content
	}
	return response, nil
}

// ListJournalRows returns entries of a journal by number, without a gap.
func (s *peerService) ListJournalRows(_ context.Context, p *greylagv1.ListJournalRowsRequest) (*greylagv1.ListJournalRowsResponse, error) {
	j, known := archive.JournalOf(p.GetJournal())
	if !known {
		return nil, call.Refuse(command.InvalidArgument, "", "there is no journal %d", p.GetJournal())
	}
	rows, err := s.cfg.Archive.Rows(j, p.GetFrom(), min(max(int(p.GetLimit()), 0), maxRecords))
	if err != nil {
		return nil, err
	}
	response, size := &greylagv1.ListJournalRowsResponse{}, 0
	for i, r := range rows {
		if size += len(r.Data); r.Seq != p.GetFrom()+uint64(i) || size > maxPeerBytes && i > 0 {
			break
		}
		response.Rows = append(response.Rows, r.Data)
	}
	return response, nil
}
