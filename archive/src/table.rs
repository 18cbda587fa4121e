//! Tables as Parquet files, compressed, in groups of rows.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;

use crate::ArchiveError;

/// A value: text that may be missing, or a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Text(Option<String>),
    Number(i64),
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Some(text.into()))
    }
}

/// A table's columns: `Text` and `Number` say of which kind.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Kind)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    /// Microseconds since 1970 (UTC).
    Time,
}

impl Table {
    pub fn file_name(&self) -> String {
        format!("{}.parquet", self.name)
    }

    fn message(&self) -> String {
        let columns = self.columns.iter().map(|(name, kind)| match kind {
            Kind::Text => format!("optional binary {name} (UTF8);"),
            Kind::Number => format!("required int64 {name};"),
            Kind::Time => format!("required int64 {name} (TIMESTAMP_MICROS);"),
        });
        format!("message {} {{ {} }}", self.name, columns.collect::<Vec<_>>().join(" "))
    }

    /// Where a column is in a row.
    pub fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|(name, _)| *name == column)
    }
}

/// Writes a table's file.
pub struct TableWriter {
    table: Table,
    path: std::path::PathBuf,
    writer: SerializedFileWriter<File>,
    rows: u64,
}

impl TableWriter {
    pub fn create(folder: &Path, table: Table) -> Result<Self, ArchiveError> {
        let path = folder.join(table.file_name());
        let created = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path);
        let file = created.map_err(ArchiveError::file(&path))?;
        let schema = parse_message_type(&table.message()).map_err(ArchiveError::parquet(&path))?;
        let compression = Compression::GZIP(GzipLevel::default());
        let properties = WriterProperties::builder().set_compression(compression).build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        let writer = writer.map_err(ArchiveError::parquet(&path))?;
        Ok(Self { table, path, writer, rows: 0 })
    }

    /// Writes rows as a group. Each has a cell for each column.
    pub fn write(&mut self, rows: &[Vec<Cell>]) -> Result<(), ArchiveError> {
        if rows.is_empty() {
            return Ok(());
        }
        write_group(&mut self.writer, self.table, rows).map_err(ArchiveError::parquet(&self.path))?;
        self.rows = self.rows.saturating_add(u64::try_from(rows.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Ends the file, on the disk. Returns its rows.
    pub fn finish(self) -> Result<u64, ArchiveError> {
        let file = self.writer.into_inner().map_err(ArchiveError::parquet(&self.path))?;
        file.sync_all().map_err(ArchiveError::file(&self.path))?;
        Ok(self.rows)
    }
}

fn write_group(
    writer: &mut SerializedFileWriter<File>,
    table: Table,
    rows: &[Vec<Cell>],
) -> parquet::errors::Result<()> {
    let mut group = writer.next_row_group()?;
    for (place, (_, kind)) in table.columns.iter().enumerate() {
        let Some(mut column) = group.next_column()? else { break };
        let cells = rows.iter().map(|row| row.get(place));
        match kind {
            Kind::Text => {
                let texts: Vec<Option<&str>> = cells
                    .map(|cell| match cell {
                        Some(Cell::Text(text)) => text.as_deref(),
                        Some(Cell::Number(_)) | None => None,
                    })
                    .collect();
                let values: Vec<ByteArray> =
                    texts.iter().flatten().map(|text| ByteArray::from(*text)).collect();
                let levels: Vec<i16> = texts.iter().map(|text| i16::from(text.is_some())).collect();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
            }
            Kind::Number | Kind::Time => {
                let values: Vec<i64> = cells
                    .map(|cell| match cell {
                        Some(Cell::Number(number)) => *number,
                        Some(Cell::Text(_)) | None => 0,
                    })
                    .collect();
                column.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

/// Reads a table's file row by row.
pub fn read(
    folder: &Path,
    table: Table,
    mut each: impl FnMut(Vec<Cell>) -> Result<(), ArchiveError>,
) -> Result<u64, ArchiveError> {
    let path = folder.join(table.file_name());
    let file = File::open(&path).map_err(ArchiveError::file(&path))?;
    let reader = SerializedFileReader::new(file).map_err(ArchiveError::parquet(&path))?;
    let mut rows = 0_u64;
    for row in reader.get_row_iter(None).map_err(ArchiveError::parquet(&path))? {
        let row = row.map_err(ArchiveError::parquet(&path))?;
        let mut cells = Vec::with_capacity(table.columns.len());
        for ((name, field), (wanted, _)) in row.get_column_iter().zip(table.columns) {
            if name.as_str() != *wanted {
                return Err(ArchiveError::changed(&path, format_args!("column {name} in place of {wanted}")));
            }
            cells.push(
                cell(field).ok_or_else(|| ArchiveError::changed(&path, format_args!("column {name}")))?,
            );
        }
        if cells.len() != table.columns.len() {
            return Err(ArchiveError::changed(&path, "a column is missing"));
        }
        each(cells)?;
        rows = rows.saturating_add(1);
    }
    Ok(rows)
}

fn cell(field: &Field) -> Option<Cell> {
    match field {
        Field::Null => Some(Cell::Text(None)),
        Field::Str(text) => Some(Cell::text(text.as_str())),
        Field::Long(number) | Field::TimestampMicros(number) => Some(Cell::Number(*number)),
        _ => None,
    }
}
