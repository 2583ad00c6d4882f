package reports

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// GetCapacity returns the nodes of periods and how much of them jobs had. Any user may call it: it
// names no users.
func (s *Service) GetCapacity(ctx context.Context, p *greylagv1.GetCapacityRequest) (*greylagv1.GetCapacityResponse, error) {
	q, err := s.ask(ctx, p.GetPeriods())
	if err != nil {
		return nil, err
	}
	used, rolled, err := q.usage()
	if err != nil {
		return nil, err
	}
	head, err := q.head(rolled)
	if err != nil {
		return nil, err
	}
	rows := make(capacityRows)
	had, since := q.view.CapacityTimes(q.bounds, min(q.now(), q.end()))
	for _, c := range had {
		r := rows.of(c.Period, c.Resource)
		r.Total, r.Down, r.Drained = c.Total, c.Down, c.Drained
	}
	for at, t := range used {
		if t.GPU > 0 {
			rows.of(at.period, cluster.ResourceGPU+":"+at.key.GPUType).Allocated += t.GPU
		}
		if t.CPU > 0 {
			rows.of(at.period, cluster.ResourceCPU).Allocated += t.CPU
		}
	}
	return &greylagv1.GetCapacityResponse{Head: head, Rows: rows.sorted(), Since: wire.Timestamp(since)}, nil
}

// capacityPlace identifies a row of capacity.
type capacityPlace struct {
	period   int
	resource string
}

type capacityRows map[capacityPlace]*greylagv1.CapacityRow

func (c capacityRows) of(period int, resource string) *greylagv1.CapacityRow {
	place := capacityPlace{period, resource}
	if c[place] == nil {
		c[place] = &greylagv1.CapacityRow{Period: uint32(period), Resource: resource}
	}
	return c[place]
}

func (c capacityRows) sorted() []*greylagv1.CapacityRow {
	return slices.SortedFunc(maps.Values(c), func(a, b *greylagv1.CapacityRow) int {
		return cmp.Or(cmp.Compare(a.Period, b.Period), strings.Compare(a.Resource, b.Resource))
	})
}
