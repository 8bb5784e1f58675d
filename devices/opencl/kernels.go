package opencl

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

//go:embed kernels.cl
var kernelSource string

// itemBlock is a divisor of the number of work items, which lets a driver find a good size
// for its work groups.
const itemBlock = 256

// kernels holds the programs that were compiled for a device, one for each type that was
// used.
type kernels struct {
	mu sync.Mutex
	// +checklocks:mu
	programs map[elem.Type]*program
}

// program combines elements of one type.
type program struct {
	id programID
	// kernels are indexed by operation.
	kernels [elem.Avg + 1]kernelID
	// failed is the reason why the program could not be built.
	failed error
}

// find returns the kernel for an operation, building it if necessary.
//
// +checklocks:ks.mu
func (ks *kernels) find(d *device, t elem.Type, op elem.Op) (kernelID, error) {
	p := ks.programs[t]
	if p == nil {
		p = d.build(t)
		if p.failed != nil {
			d.log.Warn("combining elements on the host", zap.Stringer("type", t), zap.Error(p.failed))
		}
		if ks.programs == nil {
			ks.programs = map[elem.Type]*program{}
		}
		ks.programs[t] = p
	}
	if p.failed != nil {
		return 0, fmt.Errorf("%v of %v on %s: %w: %w", op, t, d.info.Name, devices.ErrUnsupported, p.failed)
	}
	if op == elem.Avg {
		op = elem.Sum
	}
	return p.kernels[op], nil
}

// kernelMissing reports whether the host has to combine the elements. Any other error is
// reported when the work starts.
func (d *device) kernelMissing(t elem.Type, op elem.Op) bool {
	leave, err := d.life.Enter(context.Background(), d.self)
	if err != nil {
		return false
	}
	defer leave()
	d.kernels.mu.Lock()
	defer d.kernels.mu.Unlock()
	_, err = d.kernels.find(d, t, op)
	return errors.Is(err, devices.ErrUnsupported)
}

// build compiles the program for a type, if the device rounds as the host does.
func (d *device) build(t elem.Type) *program {
	p := &program{}
	if p.failed = d.rounds(t); p.failed != nil {
		return p
	}
	p.id, p.failed = d.api.compile(d.context, d.entry.id, kernelSource, "-D"+strings.ToUpper(t.String()))
	for op := elem.Sum; op < elem.Avg && p.failed == nil; op++ {
		p.kernels[op], p.failed = d.api.createKernel(p.id, "reduce_"+op.String())
	}
	if p.failed != nil {
		p.failed = errors.Join(p.failed, p.release(d.api))
	}
	return p
}

// rounds returns an error if the device's arithmetic differs from the host's.
func (d *device) rounds(t elem.Type) error {
	param, need := uintptr(clDeviceSingleFPConfig), uint64(clFPInfNaN|clFPRoundToNearest|clFPDenorm)
	switch t {
	case elem.Float16:
		need &^= clFPDenorm // no float32 resulting from these is subnormal
	case elem.BFloat16, elem.Float32:
	case elem.Float64:
		param = clDeviceDoubleFPConfig
	default:
		return nil
	}
	has, err := deviceValue[uint64](d.api, d.entry.id, param)
	if err != nil {
		return err
	}
	if has&need != need {
		return fmt.Errorf("its arithmetic of %v lacks subnormal numbers, infinities or rounding to nearest", t)
	}
	return nil
}

func (p *program) release(a *api) error {
	var errs []error
	for _, k := range p.kernels {
		if k != 0 {
			errs = append(errs, check("clReleaseKernel", Code(a.ReleaseKernel.Call(uintptr(k)))))
		}
	}
	if p.id != 0 {
		errs = append(errs, check("clReleaseProgram", Code(a.ReleaseProgram.Call(uintptr(p.id)))))
	}
	p.id, p.kernels = 0, [len(p.kernels)]kernelID{}
	return errors.Join(errs...)
}

// releaseAll releases all programs.
func (ks *kernels) releaseAll(a *api) error {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	var errs []error
	for _, p := range ks.programs {
		errs = append(errs, p.release(a))
	}
	ks.programs = nil
	return errors.Join(errs...)
}
