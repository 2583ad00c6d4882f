package grun

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/step"
)

// setGPUBind reads [verbose,]WAY.
func setGPUBind(r *request, value string) error {
	value = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(value, "verbose,"), "v,"), "gpu:")
	way, list, _ := strings.Cut(value, ":")
	r.gpuBound = true
	b := step.GPUBinding{}
	n, err := strconv.ParseUint(list, 10, 16)
	switch way {
	case "none", "closest":
		r.program.GPUs = b
		return nil
	case "single":
		b.Single = int(n)
	case "per_task":
		b.PerTask = int(n)
	case "map", "map_gpu":
		b.Map, err = parseMap(list)
	case "mask", "mask_gpu":
		b.Mask, err = parseMasks(list)
	default:
		return fmt.Errorf("%q is not supported, only none, closest, single:N, per_task:N, map:LIST and mask:LIST", value)
	}
	if err != nil || b.Single+b.PerTask+len(b.Map)+len(b.Mask) == 0 {
		return fmt.Errorf("%q has no valid number or list", value)
	}
	r.program.GPUs = b
	return nil
}

// maxCPU is the last CPU that a mask or list may name.
const maxCPU = 1023

// setCPUBind reads [q|v,]WAY. Only lists and masks have an effect: tasks share the CPUs of the job.
func setCPUBind(r *request, value string) error {
	for _, prefix := range []string{"quiet", "q", "verbose", "v"} {
		if value == prefix {
			return nil
		}
		value = strings.TrimPrefix(value, prefix+",")
	}
	way, list, _ := strings.Cut(value, ":")
	r.program.CPUs = nil
	switch way {
	case "none", "no", "cores", "threads", "sockets", "ldoms", "rank", "rank_ldom", "yes":
		return nil
	case "map_cpu":
		ids, err := parseMap(list)
		if err != nil {
			return err
		}
		for _, id := range ids {
			r.program.CPUs = append(r.program.CPUs, []int{id})
		}
		return nil
	case "mask_cpu":
		for mask := range strings.SplitSeq(list, ",") {
			cpus, err := parseCPUMask(mask)
			if err != nil {
				return err
			}
			r.program.CPUs = append(r.program.CPUs, cpus)
		}
		return nil
	}
	return fmt.Errorf("%q is not supported, only none, cores, threads, sockets, ldoms, rank, map_cpu:LIST and mask_cpu:LIST", value)
}

// parseMap reads numbers; N*M stands for M times N.
func parseMap(list string) (ids []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		word, times, repeated := strings.Cut(part, "*")
		if !repeated {
			times = "1"
		}
		id, err := strconv.ParseUint(word, 0, 16)
		n, err2 := strconv.ParseUint(times, 10, 16)
		if err != nil || err2 != nil || id > maxCPU {
			return nil, fmt.Errorf("%q is not a list of numbers from 0 to %d", list, maxCPU)
		}
		for range n {
			ids = append(ids, int(id))
		}
	}
	return ids, nil
}

func parseMasks(list string) (masks []uint64, err error) {
	for part := range strings.SplitSeq(list, ",") {
		mask, err := strconv.ParseUint(strings.TrimPrefix(part, "0x"), 16, 64)
		if err != nil || mask == 0 {
			return nil, fmt.Errorf("%q is not a list of hexadecimal masks", list)
		}
		masks = append(masks, mask)
	}
	return masks, nil
}

// parseCPUMask reads a hexadecimal mask of any length.
func parseCPUMask(mask string) (cpus []int, err error) {
	digits := strings.TrimPrefix(mask, "0x")
	for i := range len(digits) {
		bits, err := strconv.ParseUint(digits[len(digits)-1-i:len(digits)-i], 16, 8)
		if err != nil || 4*i > maxCPU {
			return nil, fmt.Errorf("%q is not a hexadecimal mask of CPUs up to %d", mask, maxCPU)
		}
		for bit := range 4 {
			if bits>>bit&1 == 1 {
				cpus = append(cpus, 4*i+bit)
			}
		}
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("the mask %q has no CPU", mask)
	}
	return cpus, nil
}
