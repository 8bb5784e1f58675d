package metadata

import (
	"context"
	"errors"
	"fmt"
)

// EnsureDevice returns the root directory of a device, and creates it if the store does not
// know the device yet. An existing one keeps its mode, owner and entries.
//
// Errors: ErrNameTooLong; ErrInvalidName, also for the name of PublishIno.
func (s *Store) EnsureDevice(ctx context.Context, name DeviceName, mode Mode, uid, gid uint32) (Inode, error) {
	if err := validName(string(name)); err != nil {
		return Inode{}, err
	}
	if name == publishName {
		return Inode{}, fmt.Errorf("device %q: %w", name, ErrInvalidName)
	}
	if in, err := s.Lookup(ctx, RootIno, string(name)); !errors.Is(err, ErrNotExist) {
		return in, err
	}
	ino, err := s.newIno(ctx)
	if err != nil {
		return Inode{}, err
	}
	defer s.locks.lock(RootIno)()
	var rec record
	err = s.update(ctx, func(t *txn) (err error) {
		rec, err = t.ensureDevice(name, ino, Node{Mode: TypeDir | mode.Perm(), UID: uid, GID: gid})
		return err
	})
	return rec.Inode, err
}

// ensureDevice returns a device's directory, and creates it with the given number if there
// is none.
func (t *txn) ensureDevice(name DeviceName, ino Ino, n Node) (record, error) {
	root, sl, err := t.findIn(RootIno, string(name))
	if err != nil {
		return record{}, err
	}
	if sl.found {
		return t.target(sl.dirent)
	}
	rec := t.newRecord(ino, &root, string(name), n)
	rec.Device = name
	t.putDevice(&DeviceRecord{Name: name, Ino: ino})
	t.enter(&root, string(name), sl, &rec)
	return rec, nil
}

func (t *txn) putDevice(d *DeviceRecord) {
	t.set(t.keyString(kindDevice, string(d.Name)), d.encode(nil))
}

func (t *txn) device(name DeviceName) (DeviceRecord, error) {
	data, err := t.kv.Get(t.keyString(kindDevice, string(name)))
	if errors.Is(err, ErrNoKey) {
		return DeviceRecord{}, fmt.Errorf("device %q: %w", name, ErrNotExist)
	}
	if err != nil {
		return DeviceRecord{}, err
	}
	return decodeDevice(name, data)
}

// Devices lists all known devices, by name.
func (s *Store) Devices(ctx context.Context) ([]DeviceRecord, error) {
	var devices []DeviceRecord
	err := s.view(ctx, func(t *txn) error {
		return t.kv.Scan([]byte{kindDevice}, nil, func(key, value []byte) (bool, error) {
			d, err := decodeDevice(DeviceName(key[1:]), value)
			devices = append(devices, d)
			return true, err
		})
	})
	return devices, err
}

// SetDeviceEpoch records the current epoch of a device.
//
// Errors: ErrNotExist if the device is not known.
func (s *Store) SetDeviceEpoch(ctx context.Context, name DeviceName, e Epoch) error {
	return s.update(ctx, func(t *txn) error {
		d, err := t.device(name)
		if err != nil {
			return err
		}
		d.Epoch = e
		t.putDevice(&d)
		return nil
	})
}

// DeviceEpoch returns the epoch recorded last; 0 if none was.
//
// Errors: ErrNotExist if the device is not known.
func (s *Store) DeviceEpoch(ctx context.Context, name DeviceName) (Epoch, error) {
	d, err := read(ctx, s, func(t *txn) (DeviceRecord, error) { return t.device(name) })
	return d.Epoch, err
}
